(* The specification: pairs, ranks, the optimal merge, the relation between bytes and tokens, valid
   tables, and what tokens spell (tito_nb.spec, merge_tree).  A table is a list of rules; a rule's
   place in it is its rank; bytes and tokens are numbers. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
Import ListNotations.

Notation token := nat (only parsing).
Notation rule := (nat * nat)%type (only parsing).
Notation table := (list (nat * nat)) (only parsing).

(* ------------------------------------------------------------------ spec *)
(* the pair p stands at position i *)
Definition PairAt (ts : list token) (i : nat) (p : rule) : Prop :=
  nth_error ts i = Some (fst p) /\ nth_error ts (S i) = Some (snd p).

(* the rule of rank r matches at position i *)
Definition Selected (rs : table) (ts : list token) (r i : nat) : Prop :=
  exists p, nth_error rs r = Some p /\ PairAt ts i p.

(* ... and no rule matches before it: lowest rank first, then leftmost position *)
Definition Optimal (rs : table) (ts : list token) (r i : nat) : Prop :=
  Selected rs ts r i /\
  forall r' i', Selected rs ts r' i' -> r < r' \/ (r = r' /\ i <= i').

(* the two tokens at position i become the token t *)
Definition apply_merge (i : nat) (t : token) (ts : list token) : list token :=
  firstn i ts ++ t :: skipn (i + 2) ts.

(* what a sequence becomes: itself if nothing matches, otherwise what the optimal merge becomes *)
Inductive RankedBpe (rs : table) : list token -> list token -> Prop :=
| Stop : forall ts, (forall r i, ~ Selected rs ts r i) -> RankedBpe rs ts ts
| Step : forall ts r i ts',
    Optimal rs ts r i ->
    RankedBpe rs (apply_merge i (256 + r) ts) ts' ->
    RankedBpe rs ts ts'.

Definition Bytes (bs : list nat) : Prop := Forall (fun b => b < 256) bs.
(* one token per byte, with its value *)
Definition initial (bs : list nat) : list token := bs.
Definition BpeSpec (rs : table) (bs : list nat) (ts : list token) : Prop :=
  RankedBpe rs (initial bs) ts.

(* no pair twice, and rule r reads only tokens below 256 + r *)
Definition Valid (rs : table) : Prop :=
  NoDup rs /\
  forall r p, nth_error rs r = Some p -> fst p < 256 + r /\ snd p < 256 + r.

(** B1. Encoding begins with one token for each byte, with the byte's value. *)
Theorem initial_is_bytes bs : length (initial bs) = length bs /\
  forall i, nth_error (initial bs) i = nth_error bs i.
Proof. split; reflexivity. Qed.

(* ----------------------------------------------- the spec is a function *)
Lemma optimal_unique rs ts r i r' i' :
  Optimal rs ts r i -> Optimal rs ts r' i' -> r = r' /\ i = i'.
Proof.
  intros [S1 O1] [S2 O2]. specialize (O1 _ _ S2). specialize (O2 _ _ S1). lia.
Qed.

(** B3. For every table and every byte string, at most one token sequence satisfies the
    specification. *)
Theorem spec_deterministic rs bs a b :
  BpeSpec rs bs a -> BpeSpec rs bs b -> a = b.
Proof.
  unfold BpeSpec. generalize (initial bs) as ts. intros ts H. revert b.
  induction H as [ts H | ts r i ts' H _ IH]; intros b Hb; inversion Hb; subst.
  - reflexivity.
  - exfalso. destruct H0 as [S _]. exact (H _ _ S).
  - exfalso. destruct H as [S _]. exact (H0 _ _ S).
  - destruct (optimal_unique _ _ _ _ _ _ H H0); subst. auto.
Qed.

(* ------------------------------------------------------------- what tokens spell *)
(* the bytes of every token: first the 256 bytes, then one entry for each rule, from its two tokens *)
Definition base : list (list nat) := map (fun b => [b]) (seq 0 256).
Fixpoint build (v : list (list nat)) (rs : table) : list (list nat) :=
  match rs with
  | [] => v
  | p :: rs' => build (v ++ [nth (fst p) v [] ++ nth (snd p) v []]) rs'
  end.
Definition vocab (rs : table) := build base rs.
Definition decode1 (rs : table) (t : token) : list nat := nth t (vocab rs) [].
Definition decode (rs : table) (ts : list token) : list nat := flat_map (decode1 rs) ts.
