(* Where drift cannot enter: between messages.  If no token of the vocabulary contains newline and
   '<' side by side - a property that is computed once per vocabulary - then encoding frame by frame
   is the same as encoding the whole rendered text. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Cuts Render.
Import ListNotations.
Local Opaque encode decode.

(* the check: look at every token once *)
Definition safe_pairb (rs : table) (x y : nat) : bool :=
  forallb (fun s => match find_pair (x, y) s with None => true | Some _ => false end) (vocab rs).

Theorem safe_pairb_sound rs x y : safe_pairb rs x y = true -> SafePair rs x y.
Proof.
  unfold safe_pairb. rewrite forallb_forall. intros H t (u & v & E).
  assert (I : In (decode1 rs t) (vocab rs)).
  { unfold decode1. destruct (nth_in_or_default t (vocab rs) []) as [I|D]; [exact I|].
    unfold decode1 in E. rewrite D in E. destruct u; discriminate. }
  specialize (H _ I). destruct (find_pair (x, y) (decode1 rs t)) as [i|] eqn:F; [discriminate|].
  apply (find_pair_none _ _ F (length u)). rewrite E. split; cbn [fst snd].
  - rewrite nth_error_app2, Nat.sub_diag by lia. reflexivity.
  - rewrite nth_error_app2 by lia. now replace (S (length u) - length u) with 1 by lia.
Qed.

Lemma render1_ends m : exists p, render1 m = p ++ [NL].
Proof.
  exists (header (mrole m) ++ escape (content m) ++ IM_END). unfold render1, FRAME_END.
  now rewrite <- !app_assoc.
Qed.

Lemma render_begins m ms : exists q, render (m :: ms) = LT :: q.
Proof. eexists. reflexivity. Qed.

Lemma bytes_render ms : Forall (fun m => Bytes (content m)) ms -> Bytes (render ms).
Proof.
  induction 1 as [|m ms B _ IH]; [constructor|].
  change (render (m :: ms)) with (render1 m ++ render ms). unfold Bytes.
  apply Forall_app. split; [now apply bytes_render1 | exact IH].
Qed.

(* Theorem: frame by frame is the whole *)
Theorem frames_are_whole rs ms : Valid rs -> SafePair rs NL LT ->
  Forall (fun m => Bytes (content m)) ms ->
  encode rs (render ms) = flat_map (fun m => encode rs (render1 m)) ms.
Proof.
  intros V S F. induction F as [|m ms B F IH]; [reflexivity|].
  cbn [flat_map]. rewrite <- IH. change (render (m :: ms)) with (render1 m ++ render ms).
  destruct ms as [|m' ms].
  - change (render []) with (@nil nat). change (encode rs []) with (@nil nat).
    now rewrite !app_nil_r.
  - pose proof (bytes_render1 m B) as B1. pose proof (bytes_render (m' :: ms) F) as B2.
    destruct (render1_ends m) as (p & E1). destruct (render_begins m' ms) as (q & E2).
    rewrite E1 in *. rewrite E2 in *. now apply safe_pair_concat.
Qed.

(* Corollary: a history of given messages, extended by one message, keeps all its ids *)
Corollary append_keeps_ids rs ms m : Valid rs -> SafePair rs NL LT ->
  Forall (fun m => Bytes (content m)) ms -> Bytes (content m) ->
  encode rs (render (ms ++ [m])) = encode rs (render ms) ++ encode rs (render1 m).
Proof.
  intros V S F B. rewrite !frames_are_whole; auto.
  - rewrite flat_map_app. cbn [flat_map]. now rewrite app_nil_r.
  - apply Forall_app. split; [exact F | now constructor].
Qed.
