(* Ranks never decrease along a derivation of a valid table.  So one rule may be applied after the
   other, each from left to right (sweep; it does not ship, but Buckets.v and Limits.v use what is
   found here). *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook.
Import ListNotations.

(* --------------------------------------------- which pairs does one merge create? *)
(* a pair in u ++ t :: w either touches the new token t or was there before the merge *)
Lemma pair_after_merge u a b w t j q : PairAt (u ++ t :: w) j q ->
  (fst q = t /\ j = length u) \/ (snd q = t /\ S j = length u) \/
  (S j < length u /\ PairAt (u ++ a :: b :: w) j q) \/
  (length u < j /\ PairAt (u ++ a :: b :: w) (S j) q).
Proof.
  intros [A B]. destruct (lt_eq_lt_dec (S j) (length u)) as [[L|L]|L].
  - right. right. left. split; [exact L|].
    rewrite nth_error_app1 in A by lia. rewrite nth_error_app1 in B by lia.
    split; rewrite nth_error_app1 by lia; assumption.
  - right. left. split; [|exact L]. rewrite nth_error_app2 in B by lia.
    replace (S j - length u) with 0 in B by lia. cbn in B. congruence.
  - destruct (Nat.eq_dec j (length u)) as [->|N].
    + left. split; [|reflexivity]. rewrite nth_error_app2, Nat.sub_diag in A by lia.
      cbn in A. congruence.
    + right. right. right. split; [lia|].
      rewrite nth_error_app2 in A by lia. rewrite nth_error_app2 in B by lia.
      split; rewrite nth_error_app2 by lia.
      * replace (S j - length u) with (S (S (j - length u - 1))) by lia.
        replace (j - length u) with (S (j - length u - 1)) in A by lia. exact A.
      * replace (S (S j) - length u) with (S (S (j - length u))) by lia.
        replace (S j - length u) with (S (j - length u)) in B by lia. exact B.
Qed.

Lemma apply_merge_at u a b w t : apply_merge (length u) t (u ++ a :: b :: w) = u ++ t :: w.
Proof.
  unfold apply_merge. rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r.
  rewrite skipn_app, skipn_all2 by lia. replace (length u + 2 - length u) with 2 by lia.
  reflexivity.
Qed.

(* In a valid table a rule of rank r2 that reads the token of rank r has r < r2. *)
Lemma reads_later rs r r2 q : Valid rs -> nth_error rs r2 = Some q ->
  fst q = 256 + r \/ snd q = 256 + r -> r < r2.
Proof. intros [_ V] N [E|E]; destruct (V _ _ N); lia. Qed.

(** Key idea: after an optimal merge of rank r at position i, everything that is selected has a
    higher rank, or the same rank and a position further right. A valid table has no rule that would
    bring an earlier rank back. *)
Lemma key_increases rs ts r i : Valid rs -> Optimal rs ts r i ->
  forall r2 j, Selected rs (apply_merge i (256 + r) ts) r2 j -> r < r2 \/ (r = r2 /\ i < j).
Proof.
  intros V [(p & Np & P) O] r2 j (q & Nq & Q).
  pose proof (pairat_split _ _ _ P) as X. unfold apply_merge in Q.
  assert (Li : length (firstn i ts) = i).
  { rewrite firstn_length. destruct P as [P _].
    assert (i < length ts) by (apply nth_error_Some; congruence). lia. }
  destruct (pair_after_merge _ (fst p) (snd p) _ _ _ _ Q) as [[E _]|[[E _]|[[L K]|[L K]]]].
  - left. apply (reads_later rs r r2 q V Nq). now left.
  - left. apply (reads_later rs r r2 q V Nq). now right.
  - rewrite <- X in K. destruct (O r2 j) as [Z|[Z1 Z2]]; [exists q; now split | now left |].
    exfalso. lia.
  - rewrite <- X in K. destruct (O r2 (S j)) as [Z|[Z1 Z2]]; [exists q; now split | now left |].
    right. split; [exact Z1 | lia].
Qed.

(** B2. On a valid table, of two optimal merges in a row the second has no lower rank. *)
Theorem rank_monotone rs ts r i r2 j : Valid rs -> Optimal rs ts r i ->
  Optimal rs (apply_merge i (256 + r) ts) r2 j -> r <= r2.
Proof. intros V O [S _]. destruct (key_increases rs ts r i V O r2 j S); lia. Qed.

(* the same, over any number of steps *)
Inductive Steps (rs : table) : list token -> list token -> Prop :=
| Here : forall ts, Steps rs ts ts
| There : forall ts r i ts', Optimal rs ts r i ->
    Steps rs (apply_merge i (256 + r) ts) ts' -> Steps rs ts ts'.

Definition AtLeast (rs : table) (r : nat) (ts : list token) : Prop :=
  forall r2 j, Selected rs ts r2 j -> r <= r2.

(** B2. On a valid table, what is selected never falls below a rank again, over any number of
    optimal merges. *)
Theorem rank_monotone_steps rs r ts ts' : Valid rs -> Steps rs ts ts' ->
  AtLeast rs r ts -> AtLeast rs r ts'.
Proof.
  intros V. induction 1 as [ts|ts r0 i ts' O H IH]; intros A; [exact A|].
  apply IH. intros r2 j S. pose proof (A _ _ (proj1 O)).
  destruct (key_increases rs ts r0 i V O r2 j S); lia.
Qed.

Lemma steps_trans rs a b c : Steps rs a b -> Steps rs b c -> Steps rs a c.
Proof. induction 1 as [ts|ts r i ts' O H IH]; intros K; [exact K|]. apply (There _ _ r i); auto. Qed.

Lemma steps_ranked rs a b c : Steps rs a b -> RankedBpe rs b c -> RankedBpe rs a c.
Proof. induction 1 as [ts|ts r i ts' O H IH]; intros K; [exact K|]. apply (Step _ _ r i); auto. Qed.

Lemma ranked_steps rs a b : RankedBpe rs a b -> Steps rs a b.
Proof. induction 1 as [ts H|ts r i ts' O H IH]; [apply Here | now apply (There _ _ r i)]. Qed.

(* ------------------------------------------------------------------- the sweep *)
(* one rule, from the left, without overlap *)
Fixpoint sweep1 (p : rule) (t : token) (ts : list token) : list token :=
  match ts with
  | a :: tl =>
      match tl with
      | b :: tl' => if (a =? fst p) && (b =? snd p) then t :: sweep1 p t tl'
                    else a :: sweep1 p t tl
      | [] => [a]
      end
  | [] => []
  end.

(* all rules, in rank order, starting at rank r *)
Fixpoint sweep (rs : table) (r : nat) (ts : list token) : list token :=
  match rs with
  | [] => ts
  | p :: rs' => sweep rs' (S r) (sweep1 p (256 + r) ts)
  end.
Definition encode_sweep (rs : table) (bs : list nat) : list token := sweep rs 0 (initial bs).

Lemma sweep1_steps rs r p : Valid rs -> nth_error rs r = Some p ->
  forall n rest, length rest <= n -> forall front, AtLeast rs r (front ++ rest) ->
  (forall j, PairAt (front ++ rest) j p -> length front <= j) ->
  let out := front ++ sweep1 p (256 + r) rest in
  Steps rs (front ++ rest) out /\ AtLeast rs (S r) out.
Proof.
  intros V Np.
  assert (End : forall ts k, AtLeast rs r ts -> (forall j, PairAt ts j p -> k <= j) ->
                length ts <= S k -> AtLeast rs (S r) ts).
  { intros ts k A F L r2 j S. destruct (Nat.eq_dec r r2) as [<-|N].
    - destruct S as (q & Nq & Q). rewrite Np in Nq. inversion Nq; subst q.
      pose proof (F _ Q). destruct Q as [_ Q].
      assert (S j < length ts) by (apply nth_error_Some; congruence). lia.
    - pose proof (A _ _ S). lia. }
  induction n as [|n IH]; intros rest Ln front A F out.
  - destruct rest; [|cbn in Ln; lia]. subst out. cbn [sweep1]. split; [apply Here|].
    apply (End _ (length front) A F). rewrite app_length. cbn. lia.
  - destruct rest as [|a [|b tl]].
    + subst out. cbn [sweep1]. split; [apply Here|].
      apply (End _ (length front) A F). rewrite app_length. cbn. lia.
    + subst out. cbn [sweep1]. split; [apply Here|].
      apply (End _ (length front) A F). rewrite app_length. cbn. lia.
    + subst out. cbn [length] in Ln.
      change (sweep1 p (256 + r) (a :: b :: tl)) with
        (if (a =? fst p) && (b =? snd p) then (256 + r) :: sweep1 p (256 + r) tl
         else a :: sweep1 p (256 + r) (b :: tl)).
      destruct ((a =? fst p) && (b =? snd p)) eqn:E.
      * apply andb_prop in E as [E1 E2]. apply Nat.eqb_eq in E1, E2. subst a b.
        assert (O : Optimal rs (front ++ fst p :: snd p :: tl) r (length front)).
        { split.
          - exists p. split; [exact Np|]. split; rewrite nth_error_app2 by lia.
            + now rewrite Nat.sub_diag.
            + now replace (S (length front) - length front) with 1 by lia.
          - intros r2 j S. destruct (Nat.eq_dec r r2) as [<-|N].
            + right. split; [reflexivity|]. destruct S as (q & Nq & Q).
              rewrite Np in Nq. inversion Nq; subst q. apply F. exact Q.
            + left. pose proof (A _ _ S). lia. }
        pose proof (key_increases rs _ _ _ V O) as K. rewrite apply_merge_at in K.
        replace (front ++ (256 + r) :: tl) with ((front ++ [256 + r]) ++ tl) in K
          by (rewrite <- app_assoc; reflexivity).
        replace (front ++ (256 + r) :: sweep1 p (256 + r) tl)
          with ((front ++ [256 + r]) ++ sweep1 p (256 + r) tl)
          by (rewrite <- app_assoc; reflexivity).
        destruct (IH tl ltac:(lia) (front ++ [256 + r])) as [I1 I2].
        { intros r2 j S. destruct (K r2 j S); lia. }
        { intros j Q. rewrite app_length. cbn [length].
          destruct (K r j); [exists p; now split | lia | lia]. }
        split; [|exact I2]. apply (There _ _ r (length front)); [exact O|].
        rewrite apply_merge_at. rewrite <- app_assoc in I1 at 1. exact I1.
      * replace (front ++ a :: b :: tl) with ((front ++ [a]) ++ b :: tl) in *
          by (rewrite <- app_assoc; reflexivity).
        replace (front ++ a :: sweep1 p (256 + r) (b :: tl))
          with ((front ++ [a]) ++ sweep1 p (256 + r) (b :: tl))
          by (rewrite <- app_assoc; reflexivity).
        apply IH; [cbn [length]; lia | exact A|].
        intros j Q. rewrite app_length. cbn [length].
        destruct (Nat.eq_dec j (length front)) as [->|N]; [|specialize (F _ Q); lia].
        exfalso. rewrite <- app_assoc in Q. cbn [app] in Q. destruct Q as [Q1 Q2].
        rewrite nth_error_app2, Nat.sub_diag in Q1 by lia.
        rewrite nth_error_app2 in Q2 by lia.
        replace (S (length front) - length front) with 1 in Q2 by lia.
        cbn in Q1, Q2. inversion Q1; inversion Q2; subst.
        rewrite !Nat.eqb_refl in E. discriminate.
Qed.

Lemma sweep_steps rs : Valid rs -> forall rest r ts,
  rs = firstn r rs ++ rest -> length (firstn r rs) = r -> AtLeast rs r ts ->
  Steps rs ts (sweep rest r ts) /\ AtLeast rs (length rs) (sweep rest r ts).
Proof.
  intros V. induction rest as [|p rest IH]; intros r ts E L A; cbn [sweep].
  - split; [apply Here|]. rewrite app_nil_r in E.
    assert (R : length rs = r) by (rewrite E; exact L). rewrite R. exact A.
  - assert (Np : nth_error rs r = Some p).
    { rewrite E, nth_error_app2 by lia. now rewrite L, Nat.sub_diag. }
    destruct (sweep1_steps rs r p V Np (length ts) ts (le_n _) [] A) as [S1 A1].
    { intros j _. apply Nat.le_0_l. }
    cbn [app] in S1, A1.
    assert (F : firstn (S r) rs = firstn r rs ++ [p]).
    { rewrite E at 1. rewrite firstn_app, L. replace (S r - r) with 1 by lia.
      rewrite firstn_all2 by lia. reflexivity. }
    destruct (IH (S r) (sweep1 p (256 + r) ts)) as [S2 A2].
    { rewrite F, <- app_assoc. exact E. }
    { rewrite F, app_length, L. cbn. lia. }
    { exact A1. }
    split; [apply (steps_trans _ _ _ _ S1 S2) | exact A2].
Qed.

(** B2. On a valid table, applying one rule after the other, each from left to right, meets the
    specification. *)
Theorem sweep_spec rs bs : Valid rs -> BpeSpec rs bs (encode_sweep rs bs).
Proof.
  intros V. unfold BpeSpec, encode_sweep.
  destruct (sweep_steps rs V rs 0 (initial bs)) as [S A]; [reflexivity | reflexivity | |].
  { intros r2 j _. lia. }
  apply (steps_ranked _ _ _ _ S). apply Stop. intros r i H. pose proof (A _ _ H).
  destruct H as (p & Np & _). assert (r < length rs) by (apply nth_error_Some; congruence). lia.
Qed.

(** B2. On a valid table the rule-by-rule sweep returns the tokens of encode. *)
Corollary encode_sweep_correct rs bs : Valid rs -> encode_sweep rs bs = encode rs bs.
Proof. intros V. symmetry. apply encode_iff_spec. apply sweep_spec. exact V. Qed.
