(* The delta tokenizer: an append-only array of ids, described by segments of four kinds.
   A sampled turn keeps the ids of the model verbatim; closing adds only the missing tail. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Render.
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

(* ------------------------------------------------------------- closing a turn *)
(* What the sampled bytes say, and the bytes still missing for a whole frame.
   None is the typed error: the bytes stop inside a spelled delimiter, or spell another one. *)
Definition close_tail (b : list nat) : option (list nat * list nat) :=
  match break_mark b with
  | None => match unescape b with
            | Some c => Some (c, FRAME_END)
            | None => None
            end
  | Some (body, rest) =>
      match unescape body with
      | None => None
      | Some c => if list_eq_dec Nat.eq_dec rest IM_END then Some (c, [NL])
                  else if list_eq_dec Nat.eq_dec rest FRAME_END then Some (c, [])
                  else None
      end
  end.

Definition Tail (t : list nat) : Prop := t = FRAME_END \/ t = [NL] \/ t = [].

Lemma im_end_marked c : break_mark (escape c ++ IM_END) = Some (escape c, IM_END).
Proof. exact (break_mark_app (escape c) (skipn 2 IM_END) (escape_no_mark c)). Qed.

Lemma frame_end_marked c : break_mark (escape c ++ FRAME_END) = Some (escape c, FRAME_END).
Proof. exact (break_mark_app (escape c) (skipn 2 FRAME_END) (escape_no_mark c)). Qed.

(* D5: closing succeeds with (content, tail) iff the sampled bytes and the tail make up exactly the
   rest of a frame, the tail being one of <|im_end|> newline, newline, nothing. *)
Theorem close_tail_iff b c t :
  close_tail b = Some (c, t) <-> b ++ t = escape c ++ FRAME_END /\ Tail t.
Proof.
  unfold close_tail, Tail. split.
  - destruct (break_mark b) as [[body rest]|] eqn:B.
    + destruct (unescape body) as [c'|] eqn:U; [|discriminate].
      apply break_mark_some in B as [-> _]. apply unescape_sound in U. subst body.
      destruct (list_eq_dec Nat.eq_dec rest IM_END) as [->|_].
      { intros H. inversion H; subst. unfold FRAME_END. rewrite app_assoc. auto. }
      destruct (list_eq_dec Nat.eq_dec rest FRAME_END) as [->|_]; [|discriminate].
      intros H. inversion H; subst. rewrite app_nil_r. auto.
    + destruct (unescape b) as [c'|] eqn:U; [|discriminate]. intros H. inversion H; subst.
      apply unescape_sound in U. subst b. auto.
  - intros [E [-> | [-> | ->]]].
    + apply app_inv_tail in E. subst b.
      destruct (break_mark (escape c)) as [[body rest]|] eqn:B.
      * exfalso. apply break_mark_some in B as [B (v & ->)].
        apply (escape_no_mark c). exists body, v. exact B.
      * now rewrite unescape_escape.
    + unfold FRAME_END in E. rewrite app_assoc in E. apply app_inv_tail in E. subst b.
      rewrite im_end_marked, unescape_escape.
      destruct (list_eq_dec Nat.eq_dec IM_END IM_END); [reflexivity | contradiction].
    + rewrite app_nil_r in E. subst b. rewrite frame_end_marked, unescape_escape.
      destruct (list_eq_dec Nat.eq_dec FRAME_END IM_END) as [F|_]; [discriminate F|].
      destruct (list_eq_dec Nat.eq_dec FRAME_END FRAME_END); [reflexivity | contradiction].
Qed.

(* the tail and the content are determined by the sampled bytes *)
Corollary close_tail_unique b c t c' t' :
  b ++ t = escape c ++ FRAME_END -> Tail t -> b ++ t' = escape c' ++ FRAME_END -> Tail t' ->
  c = c' /\ t = t'.
Proof.
  intros E T E' T'. assert (A := proj2 (close_tail_iff b c t) (conj E T)).
  assert (B := proj2 (close_tail_iff b c' t') (conj E' T')). rewrite A in B. now inversion B.
Qed.

(* every body without "<|" can be closed: with no delimiter, with one, with one and the newline *)
Corollary close_tail_accepts body : ~ Mark body -> exists c, escape c = body /\
  close_tail body = Some (c, FRAME_END) /\
  close_tail (body ++ IM_END) = Some (c, [NL]) /\
  close_tail (body ++ FRAME_END) = Some (c, []).
Proof.
  intros N. destruct (escape_onto body N) as (c & E & _). exists c. subst body.
  split; [reflexivity|]. repeat split; apply close_tail_iff; unfold Tail.
  - auto.
  - split; [|auto]. unfold FRAME_END. now rewrite app_assoc.
  - split; [|auto]. now rewrite app_nil_r.
Qed.

(* --------------------------------------------------------------------- the state *)
Inductive kind := Rendered | Prompt | Sampled | Closed.
Definition sampled_kind (k : kind) : bool := match k with Sampled => true | _ => false end.
Record seg := Seg { skind : kind; sids : list token }.
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
Fixpoint spans_from (o : nat) (l : list seg) : list (kind * nat * nat) :=
  match l with
  | [] => []
  | g :: l' => (skind g, o, o + length (sids g)) :: spans_from (o + length (sids g)) l'
  end.
Definition spans (s : state) := spans_from 0 (segs s).
Definition slice (a b : nat) (l : list token) : list token := firstn (b - a) (skipn a l).
Definition completions (s : state) : list (list token) :=
  map sids (filter (fun g => sampled_kind (skind g)) (segs s)).

(* --------------------------------------------------------------- the operations *)
Inductive op :=
| Append (m : message)            (* system, user, tool: encode the frame *)
| OpenTurn (r : role)             (* the generation prompt *)
| Sample (g : list token)         (* the model's ids, verbatim, as often as wanted *)
| CloseTurn                       (* add what is missing, loss 0 *)
| Insert (k : nat) (m : message)  (* edit the past *)
| Remove (k : nat).

Definition given (m : message) : frame :=
  Frame m [Seg Rendered (enc (render1 m))].

(* None is a typed error; the state is then unchanged, because no new state is returned *)
Definition step (s : state) (o : op) : option state :=
  match o, opened s with
  | Append m, None => Some (State (done s ++ [given m]) None)
  | OpenTurn r, None => Some (State (done s) (Some (Turn r (enc (header r)) [])))
  | Sample g, Some t =>
      Some (State (done s) (Some (Turn (trole t) (tprompt t) (tsampled t ++ g))))
  | CloseTurn, Some t =>
      match close_tail (dec (tsampled t)) with
      | None => None
      | Some (c, tail) =>
          Some (State (done s ++ [Frame (Msg (trole t) c)
                 [Seg Prompt (tprompt t); Seg Sampled (tsampled t); Seg Closed (enc tail)]])
                None)
      end
  | Insert k m, o =>
      if k <=? length (done s)
      then Some (State (firstn k (done s) ++ given m :: skipn k (done s)) o) else None
  | Remove k, o =>
      if k <? length (done s)
      then Some (State (firstn k (done s) ++ skipn (S k) (done s)) o) else None
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

Lemma tail_bytes t : Tail t -> Bytes t.
Proof.
  intros [-> | [-> | ->]]; [apply bytes_frame_end | | apply Forall_nil].
  unfold Bytes, NL. constructor; [lia | apply Forall_nil].
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

Lemma inv_step s o s' : OpOk o -> Inv s -> step s o = Some s' -> Inv s'.
Proof.
  intros O [D P] H.
  destruct o as [m | r | g | | k m | k]; cbn [step] in H;
    destruct (opened s) as [t|] eqn:Eo; try discriminate; cbn [OpOk] in O.
  - inversion H; subst; clear H. split; [|exact I].
    apply Forall_app. split; [exact D|]. constructor; [now apply given_sound | constructor].
  - inversion H; subst; clear H. split; [exact D|]. cbn [opened tprompt trole].
    apply dec_enc. apply bytes_header.
  - inversion H; subst; clear H. split; [exact D|]. exact P.
  - destruct (close_tail (dec (tsampled t))) as [[c tail]|] eqn:C; [|discriminate].
    inversion H; subst; clear H. split; [|exact I].
    apply Forall_app. split; [exact D|].
    constructor; [now apply closed_sound | constructor].
  - destruct (k <=? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact P]. cbn [done].
    rewrite <- (firstn_skipn k (done s)) in D. apply Forall_app in D as [D1 D2].
    apply Forall_app. split; [exact D1|]. constructor; [now apply given_sound | exact D2].
  - destruct (k <=? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact I]. cbn [done].
    rewrite <- (firstn_skipn k (done s)) in D. apply Forall_app in D as [D1 D2].
    apply Forall_app. split; [exact D1|]. constructor; [now apply given_sound | exact D2].
  - destruct (k <? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact P]. cbn [done].
    pose proof D as D'. rewrite <- (firstn_skipn k (done s)) in D.
    rewrite <- (firstn_skipn (S k) (done s)) in D'. apply Forall_app in D as [D1 _].
    apply Forall_app in D' as [_ D2]. apply Forall_app. now split.
  - destruct (k <? length (done s)); [|discriminate]. inversion H; subst; clear H.
    split; [|exact I]. cbn [done].
    pose proof D as D'. rewrite <- (firstn_skipn k (done s)) in D.
    rewrite <- (firstn_skipn (S k) (done s)) in D'. apply Forall_app in D as [D1 _].
    apply Forall_app in D' as [_ D2]. apply Forall_app. now split.
Qed.

(* the invariant holds after any list of operations that succeeded *)
Theorem inv_always os : Forall OpOk os ->
  forall s, run_ops empty os = Some s -> Inv s.
Proof.
  intros H. assert (G : Inv empty) by (split; [constructor | exact I]).
  revert G. generalize empty as s0. induction H as [|o os O _ IH]; intros s0 G s R.
  - cbn in R. inversion R; subst. exact G.
  - cbn [run_ops] in R. destruct (step s0 o) as [s1|] eqn:E; [|discriminate].
    apply (IH s1); [|exact R]. now apply (inv_step s0 o).
Qed.

(* D4: the bytes of the ids are the rendered messages, then the open turn if there is one *)
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

(* D4 between turns: the text parses back to the messages *)
Corollary parse_agrees s : Inv s -> opened s = None ->
  parse (dec (ids s)) = Some (messages s).
Proof.
  intros H N. rewrite (views_agree s H), N. cbn [open_bytes]. rewrite app_nil_r.
  apply parse_render.
Qed.

(* ----------------------------------------------------- spans, slices and the mask *)
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

(* D2, first half: cutting the ids at the recorded offsets gives every segment back verbatim *)
Theorem spans_slices s :
  map (fun p => match p with (k, a, b) => (k, slice a b (ids s)) end) (spans s)
  = map (fun g => (skind g, sids g)) (segs s).
Proof. exact (spans_slices_from (segs s) []). Qed.

(* in particular the sampled slices are the completions, in order *)
Corollary sampled_slices s :
  map (fun p => match p with (k, a, b) => slice a b (ids s) end)
      (filter (fun p => match p with (k, _, _) => sampled_kind k end) (spans s))
  = completions s.
Proof.
  pose proof (spans_slices s) as H. unfold completions. revert H.
  generalize (spans s) as ps, (segs s) as gs, (ids s) as i. intros ps.
  induction ps as [|[[k a] b] ps IH]; intros [|g gs] i H; try discriminate; [reflexivity|].
  cbn [map] in H. inversion H as [[Hk Hs Ht]]. subst k. cbn [filter].
  destruct (sampled_kind (skind g)); cbn [map]; [f_equal; [exact Hs|]|]; now apply IH.
Qed.

(* The design stores ids and spans only.  They determine the segments, so the mask and the
   completions; and between turns the messages are parsed from the ids. *)
Theorem ids_and_spans_suffice s s' : ids s = ids s' -> spans s = spans s' ->
  segs s = segs s' /\ mask s = mask s' /\ completions s = completions s'.
Proof.
  intros E P. assert (S : segs s = segs s').
  { pose proof (spans_slices s) as A. pose proof (spans_slices s') as B.
    rewrite E, P, B in A. revert A. generalize (segs s) as k, (segs s') as l. clear.
    induction k as [|[k1 i1] k IH]; intros [|[k2 i2] l] A; try discriminate; [reflexivity|].
    cbn [map skind sids] in A. inversion A; subst. f_equal. now apply IH. }
  unfold mask, completions. rewrite S. auto.
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

(* D2, second half: the mask is 1 exactly inside the recorded sampled spans *)
Theorem mask_exact s i :
  nth_error (mask s) i = Some true <-> exists a b, In (Sampled, a, b) (spans s) /\ a <= i < b.
Proof. exact (mask_exact_from (segs s) 0 i). Qed.

(* -------------------------------------------------------- append-only operations *)
Definition Extending (o : op) : Prop :=
  match o with Insert _ _ | Remove _ => False | _ => True end.
Definition adds_loss (o : op) : bool := match o with Sample _ => true | _ => false end.

(* D1: an append-only operation leaves the old ids, and their mask, as a prefix.  What it adds is
   masked in if and only if it is a sample. *)
Theorem extend_prefix s o s' : Extending o -> step s o = Some s' ->
  exists d, ids s' = ids s ++ d /\ mask s' = mask s ++ repeat (adds_loss o) (length d).
Proof.
  intros X H. unfold ids, mask, segs, seg_ids.
  destruct o as [m | r | g | | k m | k]; try destruct X; cbn [step] in H;
    destruct (opened s) as [t|] eqn:Eo; try discriminate.
  - inversion H; subst; clear H. exists (enc (render1 m)).
    cbn [done opened open_segs adds_loss]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map given fsegs]. unfold seg_mask. cbn [sids skind sampled_kind app flat_map].
    rewrite !app_nil_r. split; reflexivity.
  - inversion H; subst; clear H. exists (enc (header r)).
    cbn [done opened open_segs adds_loss tprompt tsampled]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map]. unfold seg_mask. cbn [sids skind sampled_kind length repeat app].
    rewrite !app_nil_r. split; reflexivity.
  - inversion H; subst; clear H. exists g.
    cbn [done opened open_segs adds_loss tprompt tsampled]. rewrite !flat_map_app.
    cbn [flat_map]. unfold seg_mask. cbn [sids skind sampled_kind].
    rewrite !app_nil_r, <- !app_assoc, app_length, repeat_app. split; reflexivity.
  - destruct (close_tail (dec (tsampled t))) as [[c tail]|] eqn:C; [|discriminate].
    inversion H; subst; clear H. exists (enc tail).
    cbn [done opened open_segs adds_loss]. rewrite !app_nil_r, !flat_map_app.
    cbn [flat_map fsegs app]. unfold seg_mask. cbn [sids skind sampled_kind].
    rewrite !app_nil_r, <- !app_assoc. split; reflexivity.
Qed.

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
    inversion E; subst. unfold ids, segs, seg_ids. rewrite Eo.
    cbn [done opened open_segs tprompt tsampled concat]. rewrite !flat_map_app.
    cbn [flat_map sids]. now rewrite !app_nil_r, <- !app_assoc.
Qed.

Lemma run_ops_app a : forall s b,
  run_ops s (a ++ b) =
  match run_ops s a with None => None | Some s' => run_ops s' b end.
Proof.
  induction a as [|o a IH]; intros s b; [reflexivity|]. cbn [app run_ops].
  destruct (step s o); [apply IH | reflexivity].
Qed.

(* D3, the prefix law: prompt_n starts with prompt_(n-1) ++ completion_(n-1).
   p1: just after opening turn n-1, its ids are prompt_(n-1). gs: what was sampled, chunk by chunk.
   p3: closed, any append-only operations, and just after opening turn n: its ids are prompt_n. *)
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

(* ----------------------------------------------------------------- insert, remove *)
Definition frame_ids (fs : list frame) : list token := seg_ids (flat_map fsegs fs).

(* D6: insert keeps every id on both sides *)
Theorem insert_ids s k m s' : step s (Insert k m) = Some s' ->
  ids s = frame_ids (firstn k (done s)) ++ frame_ids (skipn k (done s))
           ++ seg_ids (open_segs (opened s)) /\
  ids s' = frame_ids (firstn k (done s)) ++ enc (render1 m)
           ++ frame_ids (skipn k (done s)) ++ seg_ids (open_segs (opened s)).
Proof.
  cbn [step]. intros H. unfold ids, segs, frame_ids.
  assert (H' : s' = State (firstn k (done s) ++ given m :: skipn k (done s)) (opened s)).
  { destruct (opened s); destruct (k <=? length (done s)); congruence. }
  subst s'. cbn [done opened]. split.
  - rewrite app_assoc, <- seg_ids_app, <- flat_map_app, firstn_skipn. apply seg_ids_app.
  - rewrite flat_map_app. cbn [flat_map given fsegs app].
    rewrite <- app_assoc, seg_ids_app. f_equal.
    change ((Seg Rendered (enc (render1 m)) :: flat_map fsegs (skipn k (done s)))
              ++ open_segs (opened s))
      with (Seg Rendered (enc (render1 m)) :: (flat_map fsegs (skipn k (done s))
              ++ open_segs (opened s))).
    change (seg_ids (Seg Rendered (enc (render1 m)) :: (flat_map fsegs (skipn k (done s))
              ++ open_segs (opened s))))
      with (enc (render1 m) ++ seg_ids (flat_map fsegs (skipn k (done s))
              ++ open_segs (opened s))).
    now rewrite seg_ids_app.
Qed.

(* D6: inserting changes no completion *)
Theorem insert_completions s k m s' : step s (Insert k m) = Some s' ->
  completions s' = completions s.
Proof.
  cbn [step]. intros H. unfold completions, segs.
  assert (H' : s' = State (firstn k (done s) ++ given m :: skipn k (done s)) (opened s)).
  { destruct (opened s); destruct (k <=? length (done s)); congruence. }
  subst s'. cbn [done opened]. rewrite <- (firstn_skipn k (done s)) at 3.
  rewrite !flat_map_app. cbn [flat_map given fsegs app]. rewrite !filter_app.
  cbn [filter skind sampled_kind]. reflexivity.
Qed.

(* D6: the edited conversation parses back *)
Theorem insert_recovers s k m s' : Bytes (content m) -> Inv s ->
  opened s = None -> step s (Insert k m) = Some s' ->
  parse (dec (ids s')) = Some (firstn k (messages s) ++ m :: skipn k (messages s)).
Proof.
  intros B J N H. pose proof (inv_step s (Insert k m) s' B J H) as J'.
  cbn [step] in H. rewrite N in H. destruct (k <=? length (done s)); [|discriminate].
  inversion H; subst; clear H. rewrite (parse_agrees _ J' eq_refl). unfold messages.
  cbn [done]. rewrite map_app, firstn_map, skipn_map. reflexivity.
Qed.

(* D7: inserting at the end is appending *)
Theorem insert_end_is_append s m : opened s = None ->
  step s (Insert (length (done s)) m) = step s (Append m).
Proof.
  intros N. cbn [step]. rewrite N, Nat.leb_refl, firstn_all, skipn_all. reflexivity.
Qed.

(* D7: deleting what was inserted restores the state, so the ids, the spans and the mask *)
Theorem remove_inserted s k m s' : step s (Insert k m) = Some s' ->
  step s' (Remove k) = Some s.
Proof.
  cbn [step]. intros H.
  assert (K : k <= length (done s)).
  { destruct (opened s); destruct (k <=? length (done s)) eqn:E; try discriminate;
      now apply Nat.leb_le. }
  assert (H' : s' = State (firstn k (done s) ++ given m :: skipn k (done s)) (opened s)).
  { destruct (opened s); destruct (k <=? length (done s)); congruence. }
  subst s'. cbn [done opened].
  assert (F : length (firstn k (done s)) = k) by (rewrite firstn_length; lia).
  assert (L : k < length (firstn k (done s) ++ given m :: skipn k (done s))).
  { rewrite app_length, F. cbn [length]. lia. }
  apply Nat.ltb_lt in L. rewrite L.
  rewrite firstn_app, F, Nat.sub_diag, firstn_O, app_nil_r, firstn_firstn, Nat.min_id.
  rewrite skipn_app, F. rewrite skipn_all2 by lia.
  replace (S k - k) with 1 by lia. cbn [skipn app]. rewrite firstn_skipn.
  destruct s as [d o]. cbn [done opened]. destruct o; reflexivity.
Qed.

(* ------------------------------------------------ what was sampled is what is kept *)
Definition record_op (acc : list (list token)) (o : op) : list (list token) :=
  match o with
  | OpenTurn _ => acc ++ [[]]
  | Sample g => removelast acc ++ [last acc [] ++ g]
  | _ => acc
  end.

Lemma completions_eq s : completions s =
  map sids (filter (fun g => sampled_kind (skind g)) (flat_map fsegs (done s))) ++
  match opened s with None => [] | Some t => [tsampled t] end.
Proof.
  unfold completions, segs. rewrite filter_app, map_app. f_equal. now destruct (opened s).
Qed.

Lemma completions_step s o s' : (forall k, o <> Remove k) -> step s o = Some s' ->
  completions s' = record_op (completions s) o.
Proof.
  intros N H. destruct o as [m | r | g | | k m | k].
  - cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [discriminate|].
    inversion H; subst; clear H. rewrite !completions_eq, Eo. cbn [done opened record_op].
    rewrite flat_map_app, filter_app. cbn [flat_map given fsegs filter skind sampled_kind app].
    rewrite !app_nil_r. reflexivity.
  - cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [discriminate|].
    inversion H; subst; clear H. rewrite !completions_eq, Eo.
    cbn [done opened record_op tsampled]. rewrite !app_nil_r. reflexivity.
  - cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [|discriminate].
    inversion H; subst; clear H. rewrite !completions_eq, Eo.
    cbn [done opened record_op tsampled]. now rewrite removelast_last, last_last.
  - cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [|discriminate].
    destruct (close_tail (dec (tsampled t))) as [[c tail]|]; [|discriminate].
    inversion H; subst; clear H. rewrite !completions_eq, Eo. cbn [done opened record_op].
    rewrite flat_map_app, filter_app, map_app. cbn [flat_map fsegs filter skind sampled_kind app].
    cbn [map sids]. rewrite !app_nil_r. reflexivity.
  - exact (insert_completions s k m s' H).
  - destruct (N k eq_refl).
Qed.

(* D2 over a whole run: the completions are, turn by turn and chunk by chunk, exactly the ids that
   were handed to Sample; by sampled_slices they sit at the recorded offsets. *)
Theorem completions_are_samples os : (forall k, ~ In (Remove k) os) ->
  forall s, run_ops empty os = Some s -> completions s = fold_left record_op os [].
Proof.
  change (@nil (list token)) with (completions empty). generalize empty as s0.
  induction os as [|o os IH]; intros s0 N s R; cbn [run_ops fold_left] in *; [now inversion R|].
  destruct (step s0 o) as [s1|] eqn:E; [|discriminate].
  rewrite <- (completions_step s0 o s1); [| |exact E].
  - apply IH; [|exact R]. intros k I. apply (N k). now right.
  - intros k I. apply (N k). left. exact I.
Qed.
End Tokenizer.
