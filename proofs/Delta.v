(* The delta tokenizer (tito_nb.delta, bytes mode): ids that are only appended to, described by
   stretches of several kinds.  A sampled turn keeps the ids of the model verbatim; closing adds only
   what is missing of its end.  Log-probabilities are not modelled. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Render Close.
Import ListNotations.

Local Opaque header.

(* Any tokenizer will do - ranked BPE, with or without a pre-tokenizer - that decodes what it
   encoded and decodes piece by piece. *)
Section Tokenizer.
Variables (enc : list nat -> list token) (dec : list token -> list nat).
Hypothesis dec_app : forall a b, dec (a ++ b) = dec a ++ dec b.
Hypothesis dec_enc : forall b, Bytes b -> dec (enc b) = b.

Lemma dec_nil : dec [] = [].
Proof.
  pose proof (dec_app [] []) as E. apply (f_equal (@length nat)) in E. rewrite app_length in E.
  cbn [app] in E. apply length_zero_iff_nil. lia.
Qed.

(* --------------------------------------------------------------------- the state *)
Inductive kind := Context | Rendered | Prompt | Sampled | Closed | Replayed.
Definition sampled_kind (k : kind) : bool := match k with Sampled => true | _ => false end.
Definition replayed_kind (k : kind) : bool := match k with Replayed => true | _ => false end.
(* a stretch of ids of one origin *)
Record seg := Seg { skind : kind; sids : list token }.
(* a closed message, with the stretches that make it up *)
Record frame := Frame { fmsg : message; fsegs : list seg }.
Record turn := Turn { trole : role; tprompt : list token; tsampled : list token }.
Record state := State { done : list frame; opened : option turn }.

Definition seg_ids (l : list seg) : list token := flat_map sids l.
Definition open_segs (o : option turn) : list seg :=
  match o with
  | None => []
  | Some t => [Seg Prompt (tprompt t); Seg Sampled (tsampled t)]
  end.
Definition segs (s : state) : list seg := flat_map fsegs (done s) ++ open_segs (opened s).

(* the derived views *)
Definition ids (s : state) : list token := seg_ids (segs s).
Definition messages (s : state) : list message := map fmsg (done s).
Definition seg_mask (g : seg) : list bool := repeat (sampled_kind (skind g)) (length (sids g)).
Definition mask (s : state) : list bool := flat_map seg_mask (segs s).
(* 1 where ids were sampled in another context: to be scored anew, no loss *)
Definition seg_score (g : seg) : list bool := repeat (replayed_kind (skind g)) (length (sids g)).
Definition score_mask (s : state) : list bool := flat_map seg_score (segs s).
Fixpoint spans_from (o : nat) (l : list seg) : list (kind * nat * nat) :=
  match l with
  | [] => []
  | g :: l' => (skind g, o, o + length (sids g)) :: spans_from (o + length (sids g)) l'
  end.
(* a stretch without ids is no span *)
Definition spans (s : state) : list (kind * nat * nat) :=
  filter (fun p => match p with (_, a, b) => a <? b end) (spans_from 0 (segs s)).
Definition has_ids (g : seg) : bool := match sids g with [] => false | _ => true end.
Definition slice (a b : nat) (l : list token) : list token := firstn (b - a) (skipn a l).
(* what was sampled and has loss 1, one list for each turn *)
Definition completions (s : state) : list (list token) :=
  map sids (filter (fun g => sampled_kind (skind g)) (segs s)).

(* --------------------------------------------------------------- the operations *)
Inductive op :=
| Append (m : message)            (* any role: encode the message *)
| OpenTurn (r : role)             (* the generation prompt *)
| Sample (g : list token)         (* the model's ids, verbatim, as often as wanted *)
| CloseTurn                       (* add what is missing, loss 0 *)
| Discard                         (* take the open turn back *)
| Insert (k : nat) (m : message)  (* edit the past; with no turn open *)
| Remove (k : nat).

Definition given (m : message) : frame :=
  Frame m [Seg Rendered (enc (render1 m))].

(* the bytes after the first end delimiter *)
Fixpoint after_end (s : list nat) : option (list nat) :=
  match s with
  | [] => None
  | _ :: s' => match strip IM_END s with Some r => Some r | None => after_end s' end
  end.

(* delta.follow: after the end of the turn nothing may come but the newline, as one id *)
Fixpoint follow (data : list nat) (g : list token) : bool :=
  match g with
  | [] => true
  | t :: g' =>
      match after_end data with
      | Some r => if list_eq_dec Nat.eq_dec (r ++ dec [t]) [NL] then true else false
      | None => true
      end && follow (data ++ dec [t]) g'
  end.

(* what was sampled to the right of an edit was never sampled in its new context *)
Definition replay_seg (g : seg) : seg := Seg (if sampled_kind (skind g) then Replayed else skind g) (sids g).
Definition replay_frame (f : frame) : frame := Frame (fmsg f) (map replay_seg (fsegs f)).

(* None is a typed error; the state is then unchanged, because no new state is returned *)
Definition step (s : state) (o : op) : option state :=
  match o, opened s with
  | Append m, None => Some (State (done s ++ [given m]) None)
  | OpenTurn r, None => Some (State (done s) (Some (Turn r (enc (header r)) [])))
  | Sample g, Some t =>
      if follow (dec (tsampled t)) g
      then Some (State (done s) (Some (Turn (trole t) (tprompt t) (tsampled t ++ g)))) else None
  | CloseTurn, Some t =>
      match close_tail (dec (tsampled t)) with
      | None => None
      | Some (c, tail) =>
          Some (State (done s ++ [Frame (Msg (trole t) c)
                 [Seg Prompt (tprompt t); Seg Sampled (tsampled t); Seg Closed (enc tail)]])
                None)
      end
  | Discard, Some t => Some (State (done s) None)
  | Insert k m, None =>
      if k <=? length (done s)
      then Some (State (firstn k (done s) ++ given m :: map replay_frame (skipn k (done s))) None)
      else None
  | Remove k, None =>
      if k <? length (done s)
      then Some (State (firstn k (done s) ++ map replay_frame (skipn (S k) (done s))) None)
      else None
  | _, _ => None
  end.

Fixpoint run_ops (s : state) (os : list op) : option state :=
  match os with
  | [] => Some s
  | o :: os' => match step s o with None => None | Some s' => run_ops s' os' end
  end.

(* messages to be encoded must be bytes; sampled ids are arbitrary *)
Definition OpOk (o : op) : Prop :=
  match o with Append m | Insert _ m => Bytes (content m) | _ => True end.

(* -------------------------------------------------------- the three views agree *)
(* the ids of a closed message decode to its rendering *)
Definition Sound (f : frame) : Prop :=
  dec (seg_ids (fsegs f)) = render1 (fmsg f).
Definition Inv (s : state) : Prop :=
  Forall Sound (done s) /\
  match opened s with None => True | Some t => dec (tprompt t) = header (trole t) end.
Definition open_bytes (o : option turn) : list nat :=
  match o with None => [] | Some t => header (trole t) ++ dec (tsampled t) end.

Definition empty : state := State [] None.

Lemma seg_ids_app a b : seg_ids (a ++ b) = seg_ids a ++ seg_ids b.
Proof. apply flat_map_app. Qed.

Lemma given_sound m : Bytes (content m) -> Sound (given m).
Proof.
  intros B. unfold Sound, given, seg_ids. cbn [fsegs fmsg flat_map sids]. rewrite app_nil_r.
  apply dec_enc. apply bytes_render1. exact B.
Qed.

Lemma closed_sound t c tail : dec (tprompt t) = header (trole t) ->
  close_tail (dec (tsampled t)) = Some (c, tail) ->
  Sound (Frame (Msg (trole t) c)
    [Seg Prompt (tprompt t); Seg Sampled (tsampled t); Seg Closed (enc tail)]).
Proof.
  intros P C. apply close_tail_iff in C as [E T].
  unfold Sound, seg_ids. cbn [fsegs fmsg flat_map sids]. rewrite app_nil_r, !dec_app, P.
  rewrite (dec_enc tail (tail_bytes _ T)). unfold render1. cbn [mrole content].
  now rewrite E.
Qed.

Lemma replay_ids l : seg_ids (map replay_seg l) = seg_ids l.
Proof. induction l as [|g l IH]; [reflexivity|]. unfold seg_ids in *. cbn [map flat_map]. now rewrite IH. Qed.

Lemma replay_sound fs : Forall Sound fs -> Forall Sound (map replay_frame fs).
Proof.
  induction 1 as [|f fs S _ IH]; [constructor|]. constructor; [|exact IH].
  unfold Sound, replay_frame in *. cbn [fsegs fmsg]. now rewrite replay_ids.
Qed.

(** Key idea: every operation writes whole stretches of ids whose bytes are known, so it is enough
    to keep, message by message, that the ids decode to the rendering. *)
Lemma inv_step s o s' : OpOk o -> Inv s -> step s o = Some s' -> Inv s'.
Proof.
  intros O [D P] H.
  destruct o as [m | r | g | | | k m | k]; cbn [step] in H;
    destruct (opened s) as [t|] eqn:Eo; try discriminate; cbn [OpOk] in O.
  - inversion H; subst; clear H. split; [|exact I].
    apply Forall_app. split; [exact D|]. constructor; [now apply given_sound | constructor].
  - inversion H; subst; clear H. split; [exact D|]. cbn [opened tprompt trole].
    apply dec_enc. apply bytes_header.
  - destruct (follow (dec (tsampled t)) g); [|discriminate].
    inversion H; subst; clear H. split; [exact D|]. exact P.
  - destruct (close_tail (dec (tsampled t))) as [[c tail]|] eqn:C; [|discriminate].
    inversion H; subst; clear H. split; [|exact I].
    apply Forall_app. split; [exact D|].
    constructor; [now apply closed_sound | constructor].
  - inversion H; subst; clear H. split; [exact D | exact I].
  - destruct (k <=? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact I]. cbn [done].
    rewrite <- (firstn_skipn k (done s)) in D. apply Forall_app in D as [D1 D2].
    apply Forall_app. split; [exact D1|].
    constructor; [now apply given_sound | now apply replay_sound].
  - destruct (k <? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact I]. cbn [done].
    pose proof D as D'. rewrite <- (firstn_skipn k (done s)) in D.
    rewrite <- (firstn_skipn (S k) (done s)) in D'. apply Forall_app in D as [D1 _].
    apply Forall_app in D' as [_ D2]. apply Forall_app. split; [exact D1 | now apply replay_sound].
Qed.

(** D4. Over any tokenizer that decodes what it encoded, the invariant holds after any operations
    that succeed: every closed message's ids decode to its rendering. *)
Theorem inv_always os : Forall OpOk os ->
  forall s, run_ops empty os = Some s -> Inv s.
Proof.
  intros H. assert (G : Inv empty) by (split; [constructor | exact I]).
  revert G. generalize empty as s0. induction H as [|o os O _ IH]; intros s0 G s R.
  - cbn in R. inversion R; subst. exact G.
  - cbn [run_ops] in R. destruct (step s0 o) as [s1|] eqn:E; [|discriminate].
    apply (IH s1); [|exact R]. now apply (inv_step s0 o).
Qed.

(** D4. Where the invariant holds, the bytes of the ids are the rendered messages, then the open
    turn if there is one. *)
Theorem views_agree s : Inv s ->
  dec (ids s) = render (messages s) ++ open_bytes (opened s).
Proof.
  intros [D P]. unfold ids, segs. rewrite seg_ids_app, dec_app. f_equal.
  - unfold messages. clear P. induction D as [|f fs S _ IH]; [exact dec_nil|].
    cbn [flat_map map]. rewrite seg_ids_app, dec_app, IH.
    change (render (fmsg f :: map fmsg fs)) with (render1 (fmsg f) ++ render (map fmsg fs)).
    now rewrite S.
  - destruct (opened s) as [t|]; [|exact dec_nil]. unfold seg_ids.
    cbn [open_segs flat_map sids open_bytes]. now rewrite app_nil_r, dec_app, P.
Qed.

(** D4. Where the invariant holds and no turn is open, the bytes of the ids parse back to the
    messages. *)
Corollary parse_agrees s : Inv s -> opened s = None ->
  parse (dec (ids s)) = Some (messages s).
Proof.
  intros H N. rewrite (views_agree s H), N. cbn [open_bytes]. rewrite app_nil_r.
  apply parse_render.
Qed.

(* ----------------------------------------------------- spans, slices and the mask *)
(** D2. Loss mask and ids have the same length. *)
Theorem mask_length s : length (mask s) = length (ids s).
Proof.
  unfold mask, ids. induction (segs s) as [|g l IH]; [reflexivity|].
  unfold seg_ids in *. cbn [flat_map]. rewrite !app_length, IH. unfold seg_mask.
  now rewrite repeat_length.
Qed.

Lemma slice_here pre x post : slice (length pre) (length pre + length x) (pre ++ x ++ post) = x.
Proof.
  unfold slice. replace (length pre + length x - length pre) with (length x) by lia.
  rewrite skipn_app, skipn_all, Nat.sub_diag. cbn [skipn app].
  rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O. apply app_nil_r.
Qed.

Lemma spans_slices_from l : forall pre,
  map (fun p => match p with (k, a, b) => (k, slice a b (pre ++ seg_ids l)) end)
      (spans_from (length pre) l)
  = map (fun g => (skind g, sids g)) l.
Proof.
  induction l as [|g l IH]; intros pre; [reflexivity|]. cbn [spans_from map].
  change (seg_ids (g :: l)) with (sids g ++ seg_ids l). rewrite slice_here. f_equal.
  rewrite <- app_length, app_assoc. apply IH.
Qed.

Lemma spans_of_ids l : forall o,
  filter (fun p => match p with (_, a, b) => a <? b end) (spans_from o l) =
  spans_from o (filter has_ids l).
Proof.
  induction l as [|g l IH]; intros o; [reflexivity|]. cbn [spans_from filter].
  unfold has_ids at 1. destruct (sids g) as [|x xs] eqn:E.
  - cbn [length]. replace (o <? o + 0) with false by (symmetry; apply Nat.ltb_ge; lia).
    rewrite IH. now rewrite Nat.add_0_r.
  - replace (o <? o + length (x :: xs)) with true by (symmetry; apply Nat.ltb_lt; cbn; lia).
    cbn [spans_from]. rewrite IH, E. reflexivity.
Qed.

Lemma ids_of_ids l : seg_ids (filter has_ids l) = seg_ids l.
Proof.
  induction l as [|g l IH]; [reflexivity|]. cbn [filter]. unfold has_ids at 1.
  destruct (sids g) as [|x xs] eqn:E; unfold seg_ids in *; cbn [flat_map]; rewrite IH, ?E; reflexivity.
Qed.

(** D2. For every state: cutting the ids at the recorded offsets gives every stretch of ids back
    verbatim, with its kind, in order. *)
Theorem spans_slices s :
  map (fun p => match p with (k, a, b) => (k, slice a b (ids s)) end) (spans s)
  = map (fun g => (skind g, sids g)) (filter has_ids (segs s)).
Proof.
  unfold spans, ids. rewrite spans_of_ids, <- (ids_of_ids (segs s)).
  exact (spans_slices_from (filter has_ids (segs s)) []).
Qed.

Definition nonempty (l : list token) : bool := match l with [] => false | _ => true end.

(** D2. The sampled spans are, in order, exactly the completions (those that have ids). *)
Corollary sampled_slices s :
  map (fun p => match p with (k, a, b) => slice a b (ids s) end)
      (filter (fun p => match p with (k, _, _) => sampled_kind k end) (spans s))
  = filter nonempty (completions s).
Proof.
  pose proof (spans_slices s) as H. unfold completions.
  assert (E : filter nonempty (map sids (filter (fun g => sampled_kind (skind g)) (segs s))) =
              map sids (filter (fun g => sampled_kind (skind g)) (filter has_ids (segs s)))).
  { clear. induction (segs s) as [|g l IH]; [reflexivity|].
    assert (H : has_ids g = nonempty (sids g)) by reflexivity.
    destruct (sampled_kind (skind g)) eqn:K; destruct (nonempty (sids g)) eqn:Z;
      repeat (cbn [filter map]; rewrite ?H, ?K, ?Z); cbn [map]; now rewrite ?IH. }
  rewrite E. revert H.
  generalize (spans s) as ps, (filter has_ids (segs s)) as gs, (ids s) as i. intros ps.
  induction ps as [|[[k a] b] ps IH]; intros [|g gs] i H; try discriminate; [reflexivity|].
  cbn [map] in H. inversion H as [[Hk Hs Ht]]. subst k. cbn [filter].
  destruct (sampled_kind (skind g)); cbn [map]; [f_equal; [exact Hs|]|]; now apply IH.
Qed.

Lemma mask_of_ids l : flat_map seg_mask (filter has_ids l) = flat_map seg_mask l.
Proof.
  induction l as [|g l IH]; [reflexivity|]. cbn [filter]. unfold has_ids at 1.
  destruct (sids g) as [|x xs] eqn:E; cbn [flat_map]; rewrite IH; [|reflexivity].
  unfold seg_mask. now rewrite E.
Qed.

Lemma score_of_ids l : flat_map seg_score (filter has_ids l) = flat_map seg_score l.
Proof.
  induction l as [|g l IH]; [reflexivity|]. cbn [filter]. unfold has_ids at 1.
  destruct (sids g) as [|x xs] eqn:E; cbn [flat_map]; rewrite IH; [|reflexivity].
  unfold seg_score. now rewrite E.
Qed.

(** D2. Ids and spans are enough: two states with the same ids and the same spans have the same
    loss mask and the same score mask. *)
Theorem ids_and_spans_suffice s s' : ids s = ids s' -> spans s = spans s' ->
  mask s = mask s' /\ score_mask s = score_mask s'.
Proof.
  intros E P. assert (S : filter has_ids (segs s) = filter has_ids (segs s')).
  { pose proof (spans_slices s) as A. pose proof (spans_slices s') as B.
    rewrite E, P, B in A. revert A.
    generalize (filter has_ids (segs s)) as k, (filter has_ids (segs s')) as l. clear.
    induction k as [|[k1 i1] k IH]; intros [|[k2 i2] l] A; try discriminate; [reflexivity|].
    cbn [map skind sids] in A. inversion A; subst. f_equal. now apply IH. }
  unfold mask, score_mask. rewrite <- mask_of_ids, <- score_of_ids, S, mask_of_ids, score_of_ids. auto.
Qed.

Lemma mask_exact_from l : forall o i,
  (nth_error (flat_map seg_mask l) i = Some true <->
   exists a b, In (Sampled, a, b) (spans_from o l) /\ a <= o + i < b).
Proof.
  induction l as [|g l IH]; intros o i; cbn [flat_map spans_from].
  - split; [destruct i; discriminate | intros (a & b & [] & _)].
  - assert (Low : forall j k a b, In (k, a, b) (spans_from j l) -> j <= a).
    { clear. induction l as [|h l IH]; intros j k a b H; [destruct H|].
      cbn [spans_from] in H. destruct H as [H|H].
      - inversion H; subst. lia.
      - apply IH in H. lia. }
    assert (L : length (seg_mask g) = length (sids g)) by apply repeat_length.
    destruct (le_lt_dec (length (sids g)) i) as [G|G].
    + rewrite nth_error_app2 by lia. rewrite L.
      rewrite (IH (o + length (sids g)) (i - length (sids g))).
      replace (o + length (sids g) + (i - length (sids g))) with (o + i) by lia.
      split; intros (a & b & H & R); exists a, b; (split; [|exact R]).
      * right. exact H.
      * destruct H as [H|H]; [|exact H]. inversion H; subst. lia.
    + rewrite nth_error_app1 by lia. unfold seg_mask. split.
      * intros H. apply nth_error_In in H. apply repeat_spec in H.
        exists o, (o + length (sids g)). split; [|lia]. left.
        destruct (skind g); try discriminate. reflexivity.
      * intros (a & b & [H|H] & R).
        { inversion H; subst. rewrite H1. cbn [sampled_kind].
          rewrite nth_error_nth' with (d := true) by (rewrite repeat_length; exact G).
          f_equal. apply nth_repeat. }
        { apply Low in H. lia. }
Qed.

(** D2. The loss mask is 1 exactly inside the recorded sampled spans. *)
Theorem mask_exact s i :
  nth_error (mask s) i = Some true <-> exists a b, In (Sampled, a, b) (spans s) /\ a <= i < b.
Proof.
  pose proof (mask_exact_from (segs s) 0 i) as H. cbn [Nat.add] in H. unfold mask. rewrite H.
  unfold spans. split; intros (a & b & I & L); exists a, b; (split; [|exact L]).
  - apply filter_In. split; [exact I | apply Nat.ltb_lt; lia].
  - now apply filter_In in I.
Qed.

(* -------------------------------------------------------- append-only operations *)
(* history is only appended to *)
Definition Extending (o : op) : Prop :=
  match o with Discard | Insert _ _ | Remove _ => False | _ => True end.
Definition adds_loss (o : op) : bool := match o with Sample _ => true | _ => false end.

(** D1. Every operation but insert, remove and discard keeps the old ids and their loss mask as a
    prefix; what it adds has loss 1 iff it was sampled. *)
Theorem extend_prefix s o s' : Extending o -> step s o = Some s' ->
  exists d, ids s' = ids s ++ d /\ mask s' = mask s ++ repeat (adds_loss o) (length d).
Proof.
  intros X H. unfold ids, mask, segs, seg_ids.
  destruct o as [m | r | g | | | k m | k]; try destruct X; cbn [step] in H;
    destruct (opened s) as [t|] eqn:Eo; try discriminate.
  - inversion H; subst; clear H. exists (enc (render1 m)).
    cbn [done opened open_segs adds_loss]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map given fsegs]. unfold seg_mask. cbn [sids skind sampled_kind app flat_map].
    rewrite !app_nil_r. split; reflexivity.
  - inversion H; subst; clear H. exists (enc (header r)).
    cbn [done opened open_segs adds_loss tprompt tsampled]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map]. unfold seg_mask. cbn [sids skind sampled_kind length repeat app].
    rewrite !app_nil_r. split; reflexivity.
  - destruct (follow (dec (tsampled t)) g); [|discriminate]. inversion H; subst; clear H. exists g.
    cbn [done opened open_segs adds_loss tprompt tsampled]. rewrite !flat_map_app.
    cbn [flat_map]. unfold seg_mask. cbn [sids skind sampled_kind].
    rewrite !app_nil_r, <- !app_assoc, app_length, repeat_app. split; reflexivity.
  - destruct (close_tail (dec (tsampled t))) as [[c tail]|] eqn:C; [|discriminate].
    inversion H; subst; clear H. exists (enc tail).
    cbn [done opened open_segs adds_loss]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map fsegs app]. unfold seg_mask. cbn [sids skind sampled_kind].
    rewrite !app_nil_r, <- !app_assoc. split; reflexivity.
Qed.

(** D3. Over any number of such operations the old ids stay a prefix. *)
Corollary extend_prefix_many os : Forall Extending os ->
  forall s s', run_ops s os = Some s' -> exists d, ids s' = ids s ++ d.
Proof.
  induction 1 as [|o os X _ IH]; intros s s' R.
  - inversion R; subst. exists []. now rewrite app_nil_r.
  - cbn [run_ops] in R. destruct (step s o) as [s1|] eqn:E; [|discriminate].
    destruct (extend_prefix s o s1 X E) as (d & D & _). destruct (IH _ _ R) as (d' & D').
    exists (d ++ d'). now rewrite D', D, app_assoc.
Qed.

Lemma sample_ids gs : forall s s', run_ops s (map Sample gs) = Some s' ->
  ids s' = ids s ++ concat gs.
Proof.
  induction gs as [|g gs IH]; intros s s' R.
  - inversion R; subst. now rewrite app_nil_r.
  - cbn [map run_ops] in R. destruct (step s (Sample g)) as [s1|] eqn:E; [|discriminate].
    rewrite (IH _ _ R). cbn [step] in E. destruct (opened s) as [t|] eqn:Eo; [|discriminate].
    destruct (follow (dec (tsampled t)) g); [|discriminate].
    inversion E; subst. unfold ids, segs, seg_ids. rewrite Eo.
    cbn [done opened open_segs tprompt tsampled concat]. rewrite !flat_map_app.
    cbn [flat_map sids]. now rewrite !app_nil_r, <- !app_assoc.
Qed.

(** D3. As long as a history is only appended to: the ids at the opening of a turn begin with the
    ids at the opening of the turn before and everything that was sampled in it. *)
Theorem prefix_law s r p1 gs p2 os r' p3 :
  step s (OpenTurn r) = Some p1 ->
  run_ops p1 (map Sample gs) = Some p2 ->
  Forall Extending os ->
  run_ops p2 (CloseTurn :: os ++ [OpenTurn r']) = Some p3 ->
  exists d, ids p3 = (ids p1 ++ concat gs) ++ d.
Proof.
  intros _ R2 X R3. rewrite <- (sample_ids gs p1 p2 R2).
  apply (extend_prefix_many (CloseTurn :: os ++ [OpenTurn r'])); [|exact R3].
  constructor; [exact I|]. apply Forall_app. split; [exact X|]. constructor; [exact I | constructor].
Qed.

(* ------------------------------------------------ what was sampled is what is kept *)
(* one list of sampled ids for each turn; a discarded turn leaves none *)
Definition record_op (acc : list (list token)) (o : op) : list (list token) :=
  match o with
  | OpenTurn _ => acc ++ [[]]
  | Sample g => removelast acc ++ [last acc [] ++ g]
  | Discard => removelast acc
  | _ => acc
  end.
Definition Edits (o : op) : Prop := match o with Insert _ _ | Remove _ => True | _ => False end.

Lemma completions_eq s : completions s =
  map sids (filter (fun g => sampled_kind (skind g)) (flat_map fsegs (done s))) ++
  match opened s with None => [] | Some t => [tsampled t] end.
Proof.
  unfold completions, segs. rewrite filter_app, map_app. f_equal. now destruct (opened s).
Qed.

Lemma completions_step s o s' : ~ Edits o -> step s o = Some s' ->
  completions s' = record_op (completions s) o.
Proof.
  intros N H. destruct o as [m | r | g | | | k m | k]; [| | | | | now destruct N | now destruct N];
    cbn [step] in H; destruct (opened s) as [t|] eqn:Eo; try discriminate.
  - inversion H; subst; clear H. rewrite !completions_eq, Eo. cbn [done opened record_op].
    rewrite flat_map_app, filter_app. cbn [flat_map given fsegs filter skind sampled_kind app].
    rewrite !app_nil_r. reflexivity.
  - inversion H; subst; clear H. rewrite !completions_eq, Eo.
    cbn [done opened record_op tsampled]. rewrite !app_nil_r. reflexivity.
  - destruct (follow (dec (tsampled t)) g); [|discriminate].
    inversion H; subst; clear H. rewrite !completions_eq, Eo.
    cbn [done opened record_op tsampled]. now rewrite removelast_last, last_last.
  - destruct (close_tail (dec (tsampled t))) as [[c tail]|]; [|discriminate].
    inversion H; subst; clear H. rewrite !completions_eq, Eo. cbn [done opened record_op].
    rewrite flat_map_app, filter_app, map_app. cbn [flat_map fsegs filter skind sampled_kind app].
    cbn [map sids]. rewrite !app_nil_r. reflexivity.
  - inversion H; subst; clear H. rewrite !completions_eq, Eo. cbn [done opened record_op].
    now rewrite removelast_last, app_nil_r.
Qed.

(** D2. Over a whole run without edits, from the empty state: the completions are, turn by turn and
    chunk by chunk, exactly the ids that were handed to Sample (and a discarded turn leaves none). *)
Theorem completions_are_samples os : Forall (fun o => ~ Edits o) os ->
  forall s, run_ops empty os = Some s -> completions s = fold_left record_op os [].
Proof.
  change (@nil (list token)) with (completions empty). generalize empty as s0. intros s0 F.
  revert s0. induction F as [|o os N _ IH]; intros s0 s R; cbn [run_ops fold_left] in *.
  - now inversion R.
  - destruct (step s0 o) as [s1|] eqn:E; [|discriminate].
    rewrite <- (completions_step s0 o s1 N E). now apply IH.
Qed.

(* ---------------------------------------------------------- append, close, discard *)
(** D1. Over any tokenizer that decodes what it encoded: appending a message keeps all old ids as a
    prefix, the new ids decode to exactly the rendered message, and the whole parses back to the
    old messages and the new one. *)
Theorem append_exact s m s' : Inv s -> Bytes (content m) -> step s (Append m) = Some s' ->
  (exists d, ids s' = ids s ++ d /\ dec d = render1 m) /\
  parse (dec (ids s')) = Some (messages s ++ [m]).
Proof.
  intros J B H. pose proof (inv_step s (Append m) s' B J H) as J'. cbn [step] in H.
  destruct (opened s) as [t|] eqn:Eo; [discriminate|]. inversion H; subst; clear H. split.
  - exists (enc (render1 m)). split; [|now apply dec_enc, bytes_render1].
    unfold ids, segs. rewrite Eo. cbn [done opened open_segs]. rewrite !app_nil_r, flat_map_app, seg_ids_app.
    cbn [flat_map given fsegs app]. unfold seg_ids. cbn [flat_map sids]. now rewrite app_nil_r.
  - rewrite (parse_agrees _ J' eq_refl). unfold messages. cbn [done]. now rewrite map_app.
Qed.

(** D5. Closing a turn adds the ids of one of nothing, the newline, or the end delimiter and the
    newline, with loss 0; otherwise it is refused. *)
Theorem close_adds_tail s s' : step s CloseTurn = Some s' ->
  exists tail, Tail tail /\ ids s' = ids s ++ enc tail /\
    mask s' = mask s ++ repeat false (length (enc tail)).
Proof.
  intros H. cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [|discriminate].
  destruct (close_tail (dec (tsampled t))) as [[c tail]|] eqn:C; [|discriminate].
  inversion H; subst; clear H. exists tail. apply close_tail_iff in C as [_ T]. split; [exact T|].
  unfold ids, mask, segs, seg_ids. rewrite Eo. cbn [done opened open_segs].
  rewrite !app_nil_r, !flat_map_app. cbn [flat_map fsegs app]. unfold seg_mask.
  cbn [sids skind sampled_kind]. rewrite !app_nil_r, <- !app_assoc. split; reflexivity.
Qed.

(** D5. Opening a turn, sampling any number of chunks and discarding the turn restores the state that
    was there before, so its ids, spans, masks and messages. *)
Theorem discard_restores s r p1 gs p2 : step s (OpenTurn r) = Some p1 ->
  run_ops p1 (map Sample gs) = Some p2 -> step p2 Discard = Some s.
Proof.
  cbn [step]. destruct s as [d o]. cbn [opened done]. destruct o as [t|]; [discriminate|].
  intros H. inversion H; subst; clear H.
  assert (G : forall gs p, done p = d -> opened p <> None -> run_ops p (map Sample gs) = Some p2 ->
              done p2 = d /\ opened p2 <> None).
  { clear. induction gs as [|g gs IH]; intros p D O R; cbn [map run_ops] in R.
    - inversion R; subst. auto.
    - cbn [step] in R. destruct (opened p) as [t|]; [|contradiction].
      destruct (follow (dec (tsampled t)) g); [|discriminate].
      apply (IH _) in R; [exact R | exact D | discriminate]. }
  intros R. apply G in R as [D O]; [|reflexivity | discriminate].
  destruct (opened p2); [|contradiction]. now rewrite D.
Qed.
End Tokenizer.
