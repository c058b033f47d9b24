(* The table of ranks: pair -> rank of its first rule (MergeTable.ranks). *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec.
Import ListNotations.

Fixpoint rank_from (rs : table) (r : nat) (x y : token) : option nat :=
  match rs with
  | [] => None
  | p :: rs' => if (fst p =? x) && (snd p =? y) then Some r else rank_from rs' (S r) x y
  end.
Definition rank (rs : table) (x y : token) : option nat := rank_from rs 0 x y.

(* ------------------------------------------------------------------ rank is correct *)
Lemma rank_from_some rs : forall r0 x y r, rank_from rs r0 x y = Some r ->
  r0 <= r /\ nth_error rs (r - r0) = Some (x, y).
Proof.
  induction rs as [|p rs IH]; intros r0 x y r H; [discriminate|]. cbn [rank_from] in H.
  destruct ((fst p =? x) && (snd p =? y)) eqn:E.
  - inversion H; subst. rewrite Nat.sub_diag. split; [lia|]. apply andb_prop in E as [E1 E2].
    apply Nat.eqb_eq in E1, E2. destruct p; cbn in *; subst. reflexivity.
  - apply IH in H as [L N]. split; [lia|]. replace (r - r0) with (S (r - S r0)) by lia. exact N.
Qed.

Lemma rank_from_none rs : forall r0 x y, rank_from rs r0 x y = None ->
  forall k, nth_error rs k <> Some (x, y).
Proof.
  induction rs as [|p rs IH]; intros r0 x y H k N; [destruct k; discriminate|].
  cbn [rank_from] in H. destruct ((fst p =? x) && (snd p =? y)) eqn:E; [discriminate|].
  destruct k as [|k].
  - cbn in N. inversion N; subst. cbn in E. rewrite !Nat.eqb_refl in E. discriminate.
  - exact (IH _ _ _ H k N).
Qed.

Lemma rank_iff rs x y r : Valid rs -> (rank rs x y = Some r <-> nth_error rs r = Some (x, y)).
Proof.
  intros [ND _]. unfold rank. split; intros H.
  - apply rank_from_some in H as [_ N]. now rewrite Nat.sub_0_r in N.
  - destruct (rank_from rs 0 x y) as [r'|] eqn:E.
    + apply rank_from_some in E as [_ N]. rewrite Nat.sub_0_r in N. f_equal.
      apply (proj1 (NoDup_nth_error rs) ND); [|congruence].
      apply nth_error_Some. congruence.
    + exfalso. exact (rank_from_none _ _ _ _ E r H).
Qed.

Lemma rank_least rs x y r : nth_error rs r = Some (x, y) ->
  exists q, rank rs x y = Some q /\ q <= r.
Proof.
  unfold rank. intros N.
  assert (G : forall rs r0 r, nth_error rs r = Some (x, y) ->
              exists q, rank_from rs r0 x y = Some q /\ q <= r0 + r).
  { clear. induction rs as [|p rs IH]; intros r0 r N; [destruct r; discriminate|].
    cbn [rank_from]. destruct ((fst p =? x) && (snd p =? y)) eqn:E.
    - exists r0. split; [reflexivity | lia].
    - destruct r as [|r].
      + cbn in N. inversion N; subst. cbn in E. rewrite !Nat.eqb_refl in E. discriminate.
      + destruct (IH (S r0) r N) as (q & Q & L). exists q. split; [exact Q | lia]. }
  destruct (G rs 0 r N) as (q & Q & L). exists q. split; [exact Q | lia].
Qed.

(* the rank of a pair names a rule that selects it, and no rule of lower rank does *)
Lemma rank_selects rs ts i x y r : nth_error ts i = Some x -> nth_error ts (S i) = Some y ->
  rank rs x y = Some r -> Selected rs ts r i.
Proof.
  intros X Y R. exists (x, y). split; [|split; assumption].
  apply rank_from_some in R as [_ N]. now rewrite Nat.sub_0_r in N.
Qed.

Lemma selected_rank rs ts q i : Selected rs ts q i -> exists x y r,
  nth_error ts i = Some x /\ nth_error ts (S i) = Some y /\ rank rs x y = Some r /\ r <= q.
Proof.
  intros ([x y] & N & [X Y]). destruct (rank_least rs x y q N) as (r & R & L).
  exists x, y, r. auto.
Qed.

Lemma rank_bound rs x y r : rank rs x y = Some r -> r < length rs.
Proof.
  intros R. apply rank_from_some in R as [_ N]. rewrite Nat.sub_0_r in N.
  apply nth_error_Some. congruence.
Qed.
