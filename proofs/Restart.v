(* Several training examples: restart files the buffer as a finished example, if anything in it was
   sampled, and begins again with rewritten messages as context. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Render Close Delta.
Import ListNotations.

Section Restart.
Variables (enc : list nat -> list token) (dec : list token -> list nat).
Hypothesis dec_app : forall a b, dec (a ++ b) = dec a ++ dec b.
Hypothesis dec_enc : forall b, Bytes b -> dec (enc b) = b.

Record rollout := Rollout { finished : list state; current : state }.
Inductive event :=
| On (o : op)                        (* an operation on the current buffer *)
| Restart (ms : list message).

Definition examples (x : rollout) : list state := finished x ++ [current x].
Definition context (m : message) : frame := Frame m [Seg Context (enc (render1 m))].

(* was anything in it sampled, now or before an edit? *)
Definition worth_filing (s : state) : bool :=
  existsb (fun p => match p with (k, _, _) => sampled_kind k || replayed_kind k end) (spans s).

Definition happens (x : rollout) (e : event) : option rollout :=
  match e with
  | On o => match step enc dec (current x) o with
            | Some s => Some (Rollout (finished x) s)
            | None => None
            end
  | Restart ms =>
      match opened (current x) with
      | Some _ => None
      | None => Some (Rollout (finished x ++ if worth_filing (current x) then [current x] else [])
                              (State (map context ms) None))
      end
  end.

Fixpoint happen (x : rollout) (es : list event) : option rollout :=
  match es with
  | [] => Some x
  | e :: es' => match happens x e with None => None | Some x' => happen x' es' end
  end.

Definition EventOk (e : event) : Prop :=
  match e with On o => OpOk o | Restart ms => Forall (fun m => Bytes (content m)) ms end.
Definition fresh : rollout := Rollout [] empty.

(* the ids of an example that have loss 1 *)
Definition loss_ids (s : state) : list token := concat (completions s).
Definition all_loss_ids (x : rollout) : list token := flat_map loss_ids (examples x).

Lemma not_worth s : worth_filing s = false -> loss_ids s = [].
Proof.
  intros H. unfold loss_ids.
  assert (E : filter nonempty (completions s) = []).
  { rewrite <- sampled_slices.
    replace (filter (fun p => match p with (k, _, _) => sampled_kind k end) (spans s))
      with (@nil (kind * nat * nat)); [reflexivity|].
    unfold worth_filing in H. induction (spans s) as [|[[k a] b] l IH]; [reflexivity|].
    cbn [existsb] in H. apply orb_false_iff in H as [H1 H2]. apply orb_false_iff in H1 as [H1 _].
    cbn [filter]. rewrite H1. now apply IH. }
  induction (completions s) as [|c l IH]; [reflexivity|]. cbn [filter] in E. unfold nonempty at 1 in E.
  destruct c as [|t c]; [|discriminate]. cbn [concat app]. now apply IH.
Qed.

Lemma context_no_loss ms : loss_ids (State (map context ms) None) = [].
Proof.
  unfold loss_ids. rewrite completions_eq. cbn [done opened]. rewrite app_nil_r.
  induction ms as [|m ms IH]; [reflexivity|]. exact IH.
Qed.

(** D3. Restarting takes the loss from nothing that was sampled: over all training examples the ids
    with loss 1 are the same, in order; every example in which something was sampled is still there,
    unchanged; and the new one begins with no loss at all. *)
Theorem restart_keeps_loss x ms x' : happens x (Restart ms) = Some x' ->
  all_loss_ids x' = all_loss_ids x /\
  (forall s, In s (examples x) -> loss_ids s <> [] -> In s (examples x')) /\
  mask (current x') = repeat false (length (ids (current x'))).
Proof.
  intros H. cbn [happens] in H. destruct (opened (current x)) as [t|]; [discriminate|].
  inversion H; subst; clear H. split; [|split].
  - unfold all_loss_ids, examples. cbn [finished current]. rewrite !flat_map_app. cbn [flat_map].
    rewrite context_no_loss, !app_nil_r. f_equal.
    destruct (worth_filing (current x)) eqn:W; cbn [flat_map]; [now rewrite app_nil_r|].
    symmetry. now apply not_worth.
  - intros s I L. unfold examples in *. cbn [finished current]. apply in_or_app. left.
    apply in_app_or in I as [I|[<-|[]]]; [now apply in_or_app; left|]. apply in_or_app. right.
    destruct (worth_filing (current x)) eqn:W; [now left|]. destruct (L (not_worth _ W)).
  - cbn [current]. unfold mask, ids, segs. cbn [done opened open_segs]. rewrite app_nil_r. unfold seg_ids.
    induction ms as [|m ms IH]; [reflexivity|]. cbn [map flat_map context fsegs app].
    rewrite IH, app_length, repeat_app. reflexivity.
Qed.

Lemma extend_loss s o s' : Extending o -> step enc dec s o = Some s' ->
  exists d, loss_ids s' = loss_ids s ++ d.
Proof.
  intros X H. assert (N : ~ Edits o) by (destruct o; cbn in *; tauto).
  unfold loss_ids. rewrite (completions_step enc dec s o s' N H).
  destruct o; try destruct X; cbn [record_op]; try (exists []; now rewrite app_nil_r).
  - exists []. rewrite concat_app. reflexivity.
  - cbn [step] in H. destruct (opened s) as [t|] eqn:Eo; [|discriminate].
    rewrite completions_eq, Eo, removelast_last, last_last, !concat_app. cbn [concat].
    rewrite !app_nil_r. exists g. now rewrite app_assoc.
Qed.

(** D3. Over any sequence of append-only operations and restarts: over all training examples the ids
    with loss 1 only grow at the end, so nothing that was sampled ever loses its loss. *)
Theorem loss_only_grows es : Forall (fun e => match e with On o => Extending o | Restart _ => True end) es ->
  forall x x', happen x es = Some x' -> exists d, all_loss_ids x' = all_loss_ids x ++ d.
Proof.
  induction 1 as [|e es X _ IH]; intros x x' R.
  - inversion R; subst. exists []. now rewrite app_nil_r.
  - cbn [happen] in R. destruct (happens x e) as [x1|] eqn:E; [|discriminate].
    destruct (IH _ _ R) as (d & D).
    assert (G : exists d1, all_loss_ids x1 = all_loss_ids x ++ d1).
    { destruct e as [o|ms].
      - cbn [happens] in E. destruct (step enc dec (current x) o) as [s|] eqn:St; [|discriminate].
        inversion E; subst. destruct (extend_loss _ _ _ X St) as (d1 & D1). exists d1.
        unfold all_loss_ids, examples. cbn [finished current]. rewrite !flat_map_app. cbn [flat_map].
        now rewrite D1, !app_nil_r, app_assoc.
      - exists []. rewrite app_nil_r. now destruct (restart_keeps_loss _ _ _ E). }
    destruct G as (d1 & G). exists (d1 ++ d). now rewrite D, G, app_assoc.
Qed.

Lemma context_sound ms : Forall (fun m => Bytes (content m)) ms -> Forall (Sound dec) (map context ms).
Proof.
  induction 1 as [|m ms B _ IH]; [constructor|]. constructor; [|exact IH].
  unfold Sound, context, seg_ids. cbn [fsegs fmsg flat_map sids]. rewrite app_nil_r.
  now apply dec_enc, bytes_render1.
Qed.

(** D4. Over any tokenizer that decodes what it encoded, after any operations and restarts that
    succeeded, in every training example: the bytes of the ids are the rendered messages, then the
    open turn if there is one. *)
Theorem every_example_agrees es : Forall EventOk es -> forall x, happen fresh es = Some x ->
  forall s, In s (examples x) -> dec (ids s) = render (messages s) ++ open_bytes dec (opened s).
Proof.
  intros F x R s I. apply views_agree; [exact dec_app|]. revert s I.
  assert (G : forall s, In s (examples fresh) -> Inv dec s).
  { intros s [<-|[]]. split; [constructor | exact Logic.I]. }
  revert G R. generalize fresh as x0. induction F as [|e es O _ IH]; intros x0 G R; cbn [happen] in R.
  - inversion R; subst. exact G.
  - destruct (happens x0 e) as [x1|] eqn:E; [|discriminate]. apply (IH x1); [|exact R].
    intros s I. destruct e as [o|ms]; cbn [happens] in E.
    + destruct (step enc dec (current x0) o) as [s1|] eqn:St; [|discriminate]. inversion E; subst.
      unfold examples in *. cbn [finished current] in I. apply in_app_or in I as [I|[<-|[]]].
      * apply G. apply in_or_app. now left.
      * apply (inv_step enc dec dec_app dec_enc (current x0) o); [exact O | | exact St].
        apply G. apply in_or_app. right. now left.
    + destruct (opened (current x0)); [discriminate|]. inversion E; subst. unfold examples in *.
      cbn [finished current] in I. apply in_app_or in I as [I|[<-|[]]].
      * apply G. apply in_app_or in I as [I|I]; apply in_or_app; [now left|].
        destruct (worth_filing (current x0)); [right; exact I | destruct I].
      * split; [|exact Logic.I]. now apply context_sound.
Qed.
End Restart.
