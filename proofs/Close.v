(* Closing a turn (delta.judge): what the sampled bytes say, and what is missing of the end. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Render.
Import ListNotations.

(* What the sampled bytes say, and the bytes still missing of a whole message.
   None is the typed error: the bytes stop inside a spelled delimiter, or spell another one. *)
Definition close_tail (b : list nat) : option (list nat * list nat) :=
  match break_mark b with
  | None => match unescape b with
            | Some c => Some (c, MESSAGE_END)
            | None => None
            end
  | Some (body, rest) =>
      match unescape body with
      | None => None
      | Some c => if list_eq_dec Nat.eq_dec rest IM_END then Some (c, [NL])
                  else if list_eq_dec Nat.eq_dec rest MESSAGE_END then Some (c, [])
                  else None
      end
  end.

Definition Tail (t : list nat) : Prop := t = MESSAGE_END \/ t = [NL] \/ t = [].

Lemma im_end_marked c : break_mark (escape c ++ IM_END) = Some (escape c, IM_END).
Proof. exact (break_mark_app (escape c) (skipn 2 IM_END) (escape_no_mark c)). Qed.

Lemma message_end_marked c : break_mark (escape c ++ MESSAGE_END) = Some (escape c, MESSAGE_END).
Proof. exact (break_mark_app (escape c) (skipn 2 MESSAGE_END) (escape_no_mark c)). Qed.

(** D5. Closing succeeds with a content and a tail iff the sampled bytes and the tail make up the
    escaped content and the end of a message, the tail being one of nothing, the newline, or the end
    delimiter and the newline. Otherwise it is refused. *)
Theorem close_tail_iff b c t :
  close_tail b = Some (c, t) <-> b ++ t = escape c ++ MESSAGE_END /\ Tail t.
Proof.
  unfold close_tail, Tail. split.
  - destruct (break_mark b) as [[body rest]|] eqn:B.
    + destruct (unescape body) as [c'|] eqn:U; [|discriminate].
      apply break_mark_some in B as [-> _]. apply unescape_sound in U. subst body.
      destruct (list_eq_dec Nat.eq_dec rest IM_END) as [->|_].
      { intros H. inversion H; subst. unfold MESSAGE_END. rewrite app_assoc. auto. }
      destruct (list_eq_dec Nat.eq_dec rest MESSAGE_END) as [->|_]; [|discriminate].
      intros H. inversion H; subst. rewrite app_nil_r. auto.
    + destruct (unescape b) as [c'|] eqn:U; [|discriminate]. intros H. inversion H; subst.
      apply unescape_sound in U. subst b. auto.
  - intros [E [-> | [-> | ->]]].
    + apply app_inv_tail in E. subst b.
      destruct (break_mark (escape c)) as [[body rest]|] eqn:B.
      * exfalso. apply break_mark_some in B as [B (v & ->)].
        apply (escape_no_mark c). exists body, v. exact B.
      * now rewrite unescape_escape.
    + unfold MESSAGE_END in E. rewrite app_assoc in E. apply app_inv_tail in E. subst b.
      rewrite im_end_marked, unescape_escape.
      destruct (list_eq_dec Nat.eq_dec IM_END IM_END); [reflexivity | contradiction].
    + rewrite app_nil_r in E. subst b. rewrite message_end_marked, unescape_escape.
      destruct (list_eq_dec Nat.eq_dec MESSAGE_END IM_END) as [F|_]; [discriminate F|].
      destruct (list_eq_dec Nat.eq_dec MESSAGE_END MESSAGE_END); [reflexivity | contradiction].
Qed.

(** D5. Content and tail are determined by the sampled bytes. *)
Corollary close_tail_unique b c t c' t' :
  b ++ t = escape c ++ MESSAGE_END -> Tail t -> b ++ t' = escape c' ++ MESSAGE_END -> Tail t' ->
  c = c' /\ t = t'.
Proof.
  intros E T E' T'. assert (A := proj2 (close_tail_iff b c t) (conj E T)).
  assert (B := proj2 (close_tail_iff b c' t') (conj E' T')). rewrite A in B. now inversion B.
Qed.

(** D5. Every body without '<' and '|' side by side can be closed: with no delimiter sampled, with
    the end delimiter, and with the end delimiter and the newline. *)
Corollary close_tail_accepts body : ~ Mark body -> exists c, escape c = body /\
  close_tail body = Some (c, MESSAGE_END) /\
  close_tail (body ++ IM_END) = Some (c, [NL]) /\
  close_tail (body ++ MESSAGE_END) = Some (c, []).
Proof.
  intros N. destruct (escape_onto body N) as (c & E & _). exists c. subst body.
  split; [reflexivity|]. repeat split; apply close_tail_iff; unfold Tail.
  - auto.
  - split; [|auto]. unfold MESSAGE_END. now rewrite app_assoc.
  - split; [|auto]. now rewrite app_nil_r.
Qed.

Lemma tail_bytes t : Tail t -> Bytes t.
Proof.
  intros [-> | [-> | ->]]; [apply bytes_message_end | | apply Forall_nil].
  unfold Bytes, NL. constructor; [lia | apply Forall_nil].
Qed.
