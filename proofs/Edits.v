(* Editing the past: insert and remove return a branch in which every id on both sides is kept, and
   what was sampled to the right of the edit is marked replayed. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Render Close Delta.
Import ListNotations.

Section Edits.
Variables (enc : list nat -> list token) (dec : list token -> list nat).
Hypothesis dec_app : forall a b, dec (a ++ b) = dec a ++ dec b.
Hypothesis dec_enc : forall b, Bytes b -> dec (enc b) = b.

Definition frame_ids (fs : list frame) : list token := seg_ids (flat_map fsegs fs).
Definition frame_mask (fs : list frame) : list bool := flat_map seg_mask (flat_map fsegs fs).
Definition frame_score (fs : list frame) : list bool := flat_map seg_score (flat_map fsegs fs).
(* 1 on ids that a policy sampled, in this context or in another *)
Definition seg_policy (g : seg) : list bool :=
  repeat (sampled_kind (skind g) || replayed_kind (skind g)) (length (sids g)).
Definition frame_policy (fs : list frame) : list bool := flat_map seg_policy (flat_map fsegs fs).

Lemma insert_state s k m s' : step enc dec s (Insert k m) = Some s' ->
  opened s = None /\ k <= length (done s) /\
  s' = State (firstn k (done s) ++ given enc m :: map replay_frame (skipn k (done s))) None.
Proof.
  cbn [step]. destruct (opened s); [discriminate|]. destruct (k <=? length (done s)) eqn:L; [|discriminate].
  apply Nat.leb_le in L. intros H. inversion H. auto.
Qed.

Lemma remove_state s k s' : step enc dec s (Remove k) = Some s' ->
  opened s = None /\ k < length (done s) /\
  s' = State (firstn k (done s) ++ map replay_frame (skipn (S k) (done s))) None.
Proof.
  cbn [step]. destruct (opened s); [discriminate|]. destruct (k <? length (done s)) eqn:L; [|discriminate].
  apply Nat.ltb_lt in L. intros H. inversion H. auto.
Qed.

Lemma fsegs_replay fs : flat_map fsegs (map replay_frame fs) = map replay_seg (flat_map fsegs fs).
Proof. induction fs as [|f fs IH]; [reflexivity|]. cbn [map flat_map]. now rewrite IH, map_app. Qed.

Lemma replay_frame_ids fs : frame_ids (map replay_frame fs) = frame_ids fs.
Proof. unfold frame_ids. now rewrite fsegs_replay, replay_ids. Qed.

Lemma replay_frame_mask fs : frame_mask (map replay_frame fs) = repeat false (length (frame_ids fs)).
Proof.
  unfold frame_mask, frame_ids. rewrite fsegs_replay.
  induction (flat_map fsegs fs) as [|g l IH]; [reflexivity|]. unfold seg_ids in *. cbn [map flat_map].
  rewrite IH, app_length, repeat_app. f_equal. unfold seg_mask, replay_seg. cbn [skind sids].
  now destruct (skind g).
Qed.

Lemma replay_frame_score fs : frame_score (map replay_frame fs) = frame_policy fs.
Proof.
  unfold frame_score, frame_policy. rewrite fsegs_replay.
  induction (flat_map fsegs fs) as [|g l IH]; [reflexivity|]. cbn [map flat_map]. rewrite IH. f_equal.
  unfold seg_score, seg_policy, replay_seg. cbn [skind sids]. now destruct (skind g).
Qed.

Lemma replay_twice fs : map replay_frame (map replay_frame fs) = map replay_frame fs.
Proof.
  induction fs as [|f fs IH]; [reflexivity|]. cbn [map]. rewrite IH. f_equal.
  unfold replay_frame. cbn [fmsg fsegs]. f_equal.
  induction (fsegs f) as [|g l IHl]; [reflexivity|]. cbn [map]. rewrite IHl. f_equal.
  unfold replay_seg. cbn [skind sids]. now destruct (skind g).
Qed.

Lemma frame_ids_app a b : frame_ids (a ++ b) = frame_ids a ++ frame_ids b.
Proof. unfold frame_ids. now rewrite flat_map_app, seg_ids_app. Qed.

Lemma closed_views s : opened s = None ->
  ids s = frame_ids (done s) /\ mask s = frame_mask (done s) /\ score_mask s = frame_score (done s).
Proof.
  intros N. unfold ids, mask, score_mask, segs. rewrite N. cbn [open_segs]. rewrite app_nil_r. auto.
Qed.

(** D6. Over any tokenizer: inserting a message puts its ids between the ids of the messages before
    it and those of the messages after it, which are all kept, in order. *)
Theorem insert_ids s k m s' : step enc dec s (Insert k m) = Some s' ->
  ids s = frame_ids (firstn k (done s)) ++ frame_ids (skipn k (done s)) /\
  ids s' = frame_ids (firstn k (done s)) ++ enc (render1 m) ++ frame_ids (skipn k (done s)).
Proof.
  intros H. apply insert_state in H as (N & _ & ->). split.
  - rewrite (proj1 (closed_views s N)), <- frame_ids_app. now rewrite firstn_skipn.
  - rewrite (proj1 (closed_views (State _ None) eq_refl)). cbn [done].
    change (given enc m :: ?l) with ([given enc m] ++ l). rewrite !frame_ids_app, replay_frame_ids.
    unfold frame_ids at 2. cbn. now rewrite !app_nil_r.
Qed.

(** D6. Removing a message takes its ids out and keeps all others, in order. *)
Theorem remove_ids s k s' : step enc dec s (Remove k) = Some s' ->
  exists gone, ids s = frame_ids (firstn k (done s)) ++ gone ++ frame_ids (skipn (S k) (done s)) /\
  ids s' = frame_ids (firstn k (done s)) ++ frame_ids (skipn (S k) (done s)).
Proof.
  intros H. apply remove_state in H as (N & L & ->). destruct (nth_error (done s) k) as [f|] eqn:E.
  2: { apply nth_error_None in E. lia. }
  exists (frame_ids [f]). split.
  - rewrite (proj1 (closed_views s N)), <- !frame_ids_app. f_equal.
    apply nth_error_split in E as (a & b & E & La). rewrite E, <- La.
    rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r. f_equal. cbn [app]. f_equal.
    rewrite skipn_app, skipn_all2 by lia. now replace (S (length a) - length a) with 1 by lia.
  - rewrite (proj1 (closed_views (State _ None) eq_refl)). cbn [done]. now rewrite frame_ids_app, replay_frame_ids.
Qed.

(** D6. Loss and score after an insert: to the left nothing changes; the message and everything to
    its right have loss 0; and the score mask to the right is 1 exactly where ids were sampled, now
    or before. *)
Theorem insert_masks s k m s' : step enc dec s (Insert k m) = Some s' ->
  let new := length (enc (render1 m)) in let right := skipn k (done s) in
  mask s' = frame_mask (firstn k (done s)) ++ repeat false (new + length (frame_ids right)) /\
  score_mask s' = frame_score (firstn k (done s)) ++ repeat false new ++ frame_policy right.
Proof.
  intros H new right. apply insert_state in H as (_ & _ & ->). fold right.
  destruct (closed_views (State (firstn k (done s) ++ given enc m :: map replay_frame right) None) eq_refl)
    as (_ & -> & ->). cbn [done].
  pose proof (replay_frame_mask right) as Hm. pose proof (replay_frame_score right) as Hs.
  unfold frame_mask, frame_score in *. rewrite !flat_map_app. cbn [flat_map given fsegs].
  rewrite !flat_map_app, Hm, Hs. cbn [flat_map]. unfold seg_mask, seg_score. cbn [skind sids sampled_kind replayed_kind].
  rewrite !app_nil_r. fold new. rewrite repeat_app. now split.
Qed.

(** D6. Loss and score after a removal: to the left nothing changes; to the right all have loss 0,
    and the score mask is 1 exactly where ids were sampled, now or before. *)
Theorem remove_masks s k s' : step enc dec s (Remove k) = Some s' ->
  let right := skipn (S k) (done s) in
  mask s' = frame_mask (firstn k (done s)) ++ repeat false (length (frame_ids right)) /\
  score_mask s' = frame_score (firstn k (done s)) ++ frame_policy right.
Proof.
  intros H right. apply remove_state in H as (_ & _ & ->). fold right.
  destruct (closed_views (State (firstn k (done s) ++ map replay_frame right) None) eq_refl)
    as (_ & -> & ->). cbn [done].
  pose proof (replay_frame_mask right) as Hm. pose proof (replay_frame_score right) as Hs.
  unfold frame_mask, frame_score in *. now rewrite !flat_map_app, Hm, Hs.
Qed.

Lemma replay_messages fs : map fmsg (map replay_frame fs) = map fmsg fs.
Proof. rewrite map_map. reflexivity. Qed.

(** D6. Over any tokenizer that decodes what it encoded: the conversation with a message inserted
    parses back, with the message in its place. *)
Theorem insert_recovers s k m s' : Bytes (content m) -> Inv dec s -> step enc dec s (Insert k m) = Some s' ->
  parse (dec (ids s')) = Some (firstn k (messages s) ++ m :: skipn k (messages s)).
Proof.
  intros B J H. pose proof (inv_step enc dec dec_app dec_enc s (Insert k m) s' B J H) as J'.
  apply insert_state in H as (_ & _ & ->).
  rewrite (parse_agrees dec dec_app _ J' eq_refl). unfold messages. cbn [done]. rewrite map_app.
  cbn [map]. now rewrite replay_messages, firstn_map, skipn_map.
Qed.

(** D6. Over any tokenizer that decodes what it encoded: the conversation with a message removed
    parses back, without it. *)
Theorem remove_recovers s k s' : Inv dec s -> step enc dec s (Remove k) = Some s' ->
  parse (dec (ids s')) = Some (firstn k (messages s) ++ skipn (S k) (messages s)).
Proof.
  intros J H. pose proof (inv_step enc dec dec_app dec_enc s (Remove k) s' I J H) as J'.
  apply remove_state in H as (_ & _ & ->).
  rewrite (parse_agrees dec dec_app _ J' eq_refl). unfold messages. cbn [done]. rewrite map_app.
  now rewrite replay_messages, firstn_map, skipn_map.
Qed.

(** D7. Inserting at the end is appending: the same state, so the same ids, spans and masks. *)
Theorem insert_end_is_append s m : opened s = None ->
  step enc dec s (Insert (length (done s)) m) = step enc dec s (Append m).
Proof.
  intros N. cbn [step]. rewrite N, Nat.leb_refl, firstn_all, skipn_all. reflexivity.
Qed.

(** D7. Removing what was inserted restores the ids and the messages; what was sampled to the right
    stays marked as replayed. *)
Theorem remove_inserted s k m s' : step enc dec s (Insert k m) = Some s' ->
  exists s2, step enc dec s' (Remove k) = Some s2 /\ ids s2 = ids s /\ messages s2 = messages s /\
    done s2 = firstn k (done s) ++ map replay_frame (skipn k (done s)).
Proof.
  intros H. apply insert_state in H as (N & K & ->). cbn [step opened done].
  assert (F : length (firstn k (done s)) = k) by (rewrite firstn_length; lia).
  assert (L : k <? length (firstn k (done s) ++ given enc m :: map replay_frame (skipn k (done s))) = true).
  { apply Nat.ltb_lt. rewrite app_length, F. cbn [length]. lia. }
  rewrite L. eexists. split; [reflexivity|].
  assert (E : firstn k (firstn k (done s) ++ given enc m :: map replay_frame (skipn k (done s))) ++
     map replay_frame (skipn (S k) (firstn k (done s) ++ given enc m :: map replay_frame (skipn k (done s)))) =
     firstn k (done s) ++ map replay_frame (skipn k (done s))).
  { rewrite firstn_app, F, Nat.sub_diag, firstn_O, app_nil_r, firstn_firstn, Nat.min_id.
    rewrite skipn_app, F. rewrite skipn_all2 by lia.
    replace (S k - k) with 1 by lia. cbn [skipn app]. now rewrite replay_twice. }
  rewrite E. cbn [done]. split; [|split; [|reflexivity]].
  - rewrite (proj1 (closed_views s N)), (proj1 (closed_views (State _ None) eq_refl)). cbn [done].
    rewrite frame_ids_app, replay_frame_ids, <- frame_ids_app. now rewrite firstn_skipn.
  - unfold messages. cbn [done]. now rewrite map_app, replay_messages, <- map_app, firstn_skipn.
Qed.
End Edits.
