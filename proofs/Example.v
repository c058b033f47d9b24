(* The proof that lesson 08 goes through step by step: decoding goes token by token (B6).  It is
   about any function from tokens to bytes; the one of merge tables is in Spec.v. *)
From Coq Require Import List.
Import ListNotations.

Section Example.
Variable spell : nat -> list nat.  (* what a token spells *)

Fixpoint decode (ts : list nat) : list nat :=
  match ts with
  | [] => []
  | t :: rest => spell t ++ decode rest
  end.

Theorem decode_app s t : decode (s ++ t) = decode s ++ decode t.
Proof.
  induction s as [| x rest IH].
  - reflexivity.
  - simpl.
    rewrite IH.
    rewrite app_assoc.
    reflexivity.
Qed.
End Example.
