(* Between messages: in a table in which newline and '<' are no inner pair, encoding message by message
   is the same as encoding the whole rendered text. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook InnerPairs Render.
Import ListNotations.
Local Opaque encode decode.

Lemma render1_ends m : exists p, render1 m = p ++ [NL].
Proof.
  exists (header (mrole m) ++ escape (content m) ++ IM_END). unfold render1, MESSAGE_END.
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

(** B9, D1. On a valid table in which newline and '<' are no inner pair, encoding a rendered
    conversation gives the tokens of its messages encoded one by one. *)
Theorem by_message_is_whole rs ms : Valid rs -> ~ In (NL, LT) (inner_pairs rs) ->
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
    rewrite E1 in *. rewrite E2 in *. now apply cut_outside_inner_pairs.
Qed.

(** B9, D1. On such a table, encoding a conversation with one more message keeps all tokens of the
    conversation and adds those of the message. *)
Corollary append_keeps_ids rs ms m : Valid rs -> ~ In (NL, LT) (inner_pairs rs) ->
  Forall (fun m => Bytes (content m)) ms -> Bytes (content m) ->
  encode rs (render (ms ++ [m])) = encode rs (render ms) ++ encode rs (render1 m).
Proof.
  intros V S F B. rewrite !by_message_is_whole; auto.
  - rewrite flat_map_app. cbn [flat_map]. now rewrite app_nil_r.
  - apply Forall_app. split; [exact F | now constructor].
Qed.
