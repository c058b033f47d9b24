(* Canonical sequences that overlap in at least one token glue together (Corollary III in the notes of
   the rust-gems library bpe); so a sequence is canonical iff its tokens and its adjacent pairs are. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Cuts Sweep.
Import ListNotations.

(* encoding what the tokens spell gives the tokens *)
Definition Canonical (rs : table) (ts : list token) : Prop := encode rs (decode rs ts) = ts.
Definition InRange (rs : table) (ts : list token) : Prop :=
  Forall (fun t => t < 256 + length rs) ts.

Lemma canonical_spec rs ts : Canonical rs ts <-> RankedBpe rs (decode rs ts) ts.
Proof. unfold Canonical. rewrite encode_iff_spec. reflexivity. Qed.

Lemma decode1_range rs : Valid rs -> forall t, t < 256 + length rs ->
  Bytes (decode1 rs t) /\ decode1 rs t <> [].
Proof.
  intros V t. induction t as [t IH] using (well_founded_induction lt_wf). intros L.
  destruct (le_lt_dec 256 t) as [G|G].
  - destruct (nth_error rs (t - 256)) as [p|] eqn:N; [|apply nth_error_None in N; lia].
    destruct (proj2 V _ _ N) as [A B].
    replace t with (256 + (t - 256)) by lia. rewrite (decode1_rule _ _ _ V N).
    destruct (IH (fst p)) as [B1 N1]; [lia | lia |].
    destruct (IH (snd p)) as [B2 N2]; [lia | lia |].
    split; [apply Forall_app; now split|]. intros E. apply app_eq_nil in E as [E _]. contradiction.
  - rewrite decode1_byte by exact G. split; [|discriminate]. constructor; [exact G | constructor].
Qed.

Lemma range_ne rs ts : Valid rs -> InRange rs ts -> NE rs ts.
Proof.
  intros V H. unfold NE. unfold InRange in H. eapply Forall_impl; [|exact H].
  intros t L. now apply decode1_range.
Qed.

Lemma range_bytes rs ts : Valid rs -> InRange rs ts -> Bytes (decode rs ts).
Proof.
  intros V. unfold Bytes. induction 1 as [|t ts L _ IH]; [constructor|]. rewrite decode_cons.
  apply Forall_app. split; [now apply decode1_range | exact IH].
Qed.

(* ------------------------------------------------------- positions of selections *)
Lemma selected_l rs l r q i : Selected rs l q i -> Selected rs (l ++ r) q i.
Proof. intros (p & N & P). exists p. split; [exact N | now apply pairat_l]. Qed.
Lemma selected_r rs l r q j : Selected rs r q j -> Selected rs (l ++ r) q (length l + j).
Proof. intros (p & N & P). exists p. split; [exact N | now apply pairat_r]. Qed.
Lemma selected_l_inv rs l r q i : Selected rs (l ++ r) q i -> S i < length l -> Selected rs l q i.
Proof. intros (p & N & P) L. exists p. split; [exact N | eapply pairat_l_inv; eauto]. Qed.
Lemma selected_r_inv rs l r q j : Selected rs (l ++ r) q (length l + j) -> Selected rs r q j.
Proof. intros (p & N & P). exists p. split; [exact N | eapply pairat_r_inv; eauto]. Qed.

Lemma optimal_l rs l r q i : Optimal rs (l ++ r) q i -> S i < length l -> Optimal rs l q i.
Proof.
  intros [S O] L. split; [eapply selected_l_inv; eauto|].
  intros r2 j H. apply O. now apply selected_l.
Qed.
Lemma optimal_r rs l r q j : Optimal rs (l ++ r) q (length l + j) -> Optimal rs r q j.
Proof.
  intros [S O]. split; [eapply selected_r_inv; eauto|].
  intros r2 k H. destruct (O r2 (length l + k)) as [Z|[Z1 Z2]];
    [now apply selected_r | now left | right; split; [exact Z1 | lia]].
Qed.

Lemma ranked_forward rs ts z r i : RankedBpe rs ts z -> Optimal rs ts r i ->
  RankedBpe rs (apply_merge i (256 + r) ts) z.
Proof.
  intros H O. inversion H as [ts' N | ts' r' i' z' O' R]; subst.
  - exfalso. exact (N _ _ (proj1 O)).
  - destruct (optimal_unique _ _ _ _ _ _ O O') as [-> ->]. exact R.
Qed.

Lemma ranked_stuck rs ts z : RankedBpe rs ts z -> (forall q i, ~ Selected rs ts q i) -> ts = z.
Proof.
  intros H N. inversion H as [ts' _' | ts' r' i' z' O' R]; subst; [reflexivity|].
  exfalso. exact (N _ _ (proj1 O')).
Qed.

(* ----------------------------------------------------------- cuts only disappear *)
Definition Cut (rs : table) (ts : list token) (n : nat) : Prop :=
  exists l r, ts = l ++ r /\ length (decode rs l) = n.

Lemma merge_shape rs ts q i : Selected rs ts q i -> exists u p w,
  nth_error rs q = Some p /\ ts = u ++ fst p :: snd p :: w /\ length u = i /\
  apply_merge i (256 + q) ts = u ++ (256 + q) :: w.
Proof.
  intros (p & N & P). exists (firstn i ts), p, (skipn (i + 2) ts).
  split; [exact N|]. split; [exact (pairat_split _ _ _ P)|]. split; [|reflexivity].
  rewrite firstn_length. destruct P as [P _].
  assert (i < length ts) by (apply nth_error_Some; congruence). lia.
Qed.

Lemma cut_merge rs ts q i n : Valid rs -> Selected rs ts q i ->
  Cut rs (apply_merge i (256 + q) ts) n -> Cut rs ts n.
Proof.
  intros V S (l & r & E & D). destruct (merge_shape _ _ _ _ S) as (u & p & w & N & T & _ & M).
  rewrite M in E. subst ts. apply app_eq_app in E as (zs & [[E1 E2] | [E1 E2]]).
  - exists l, (zs ++ fst p :: snd p :: w). subst u. now rewrite <- app_assoc.
  - destruct zs as [|z zs]; cbn [app] in E2.
    + exists l, (fst p :: snd p :: w). rewrite app_nil_r in E1. subst l. auto.
    + assert (Ez : z = 256 + q) by congruence. assert (Ew : w = zs ++ r) by congruence.
      subst z w. exists (u ++ fst p :: snd p :: zs), r. split.
      { rewrite <- app_assoc. reflexivity. }
      rewrite <- D, E1, !decode_app, !decode_cons, (decode1_rule _ _ _ V N), <- app_assoc.
      reflexivity.
Qed.

Lemma cut_steps rs ts ts' n : Valid rs -> Steps rs ts ts' -> Cut rs ts' n -> Cut rs ts n.
Proof.
  intros V. induction 1 as [ts|ts r i ts' O H IH]; intros C; [exact C|].
  apply (cut_merge rs ts r i n V (proj1 O)). auto.
Qed.

Lemma cross_kills rs l m q i : Valid rs -> NE rs (l ++ m) -> Selected rs (l ++ m) q i ->
  S i = length l -> ~ Cut rs (apply_merge i (256 + q) (l ++ m)) (length (decode rs l)).
Proof.
  intros V NEv S L (l1 & r1 & E & D).
  destruct (merge_shape _ _ _ _ S) as (u & p & w & N & T & Lu & M).
  rewrite M in E. clear M S.
  assert (El : l = u ++ [fst p]).
  { apply (f_equal (firstn (length l))) in T.
    rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r in T.
    rewrite firstn_app, firstn_all2 in T by lia.
    replace (length l - length u) with 1 in T by lia. exact T. }
  unfold NE in NEv. rewrite T in NEv. apply Forall_app in NEv as [_ NEv].
  inversion NEv as [|? ? NA NEv2]; subst. inversion NEv2 as [|? ? NB _]; subst.
  assert (LA : length (decode1 rs (fst p)) <> 0)
    by (intros Z; apply length_zero_iff_nil in Z; contradiction).
  assert (LB : length (decode1 rs (snd p)) <> 0)
    by (intros Z; apply length_zero_iff_nil in Z; contradiction).
  rewrite decode_app, app_length in D. cbn [decode flat_map] in D. rewrite app_nil_r in D.
  fold (decode rs l1) in D. fold (decode rs u) in D.
  apply app_eq_app in E as (zs & [[E1 E2] | [E1 E2]]).
  - subst u. rewrite decode_app, app_length in D. lia.
  - destruct zs as [|z zs]; cbn [app] in E2.
    + rewrite app_nil_r in E1. subst l1. lia.
    + assert (Ez : z = 256 + q) by congruence. subst z l1.
      rewrite decode_app, decode_cons, (decode1_rule _ _ _ V N), !app_length in D. lia.
Qed.

(** Key idea: a run whose result has a border somewhere never merges across that place. *)
Lemma no_cross rs l m l' m' q i : Valid rs -> NE rs (l ++ m) -> Selected rs (l ++ m) q i ->
  S i = length l -> Steps rs (apply_merge i (256 + q) (l ++ m)) (l' ++ m') ->
  decode rs l = decode rs l' -> False.
Proof.
  intros V N S L H D. apply (cross_kills rs l m q i V N S L).
  apply (cut_steps rs _ (l' ++ m') _ V H). exists l', m'. now rewrite D.
Qed.

Lemma ne_split rs l m l' m' : NE rs (l ++ m) -> l ++ m = l' ++ m' ->
  decode rs l = decode rs l' -> l = l' /\ m = m'.
Proof.
  intros N E D. assert (X : l = l').
  { apply app_eq_app in E as (zs & [[E1 E2] | [E1 E2]]).
    - subst l. rewrite decode_app in D. rewrite <- (app_nil_r (decode rs l')) in D at 2.
      apply app_inv_head in D. rewrite <- app_assoc in N. unfold NE in N.
      apply Forall_app in N as [_ N]. apply Forall_app in N as [N _].
      rewrite (ne_decode_nil rs zs N D). apply app_nil_r.
    - subst l'. rewrite decode_app in D. rewrite <- (app_nil_r (decode rs l)) in D at 1.
      apply app_inv_head in D. symmetry in D. subst m. unfold NE in N.
      apply Forall_app in N as [_ N]. apply Forall_app in N as [N _].
      rewrite (ne_decode_nil rs zs N D). symmetry. apply app_nil_r. }
  subst l'. split; [reflexivity|]. now apply app_inv_head in E.
Qed.

(* ---------------------------------------------------------------------- gluing *)
(** Key idea: two overlapping runs take the same merges in their common part, so they can be run as
    one. *)
Lemma glue rs : Valid rs -> forall n l m r l' m' r', length (l ++ m ++ r) <= n ->
  NE rs (l ++ m ++ r) -> decode rs m <> [] ->
  RankedBpe rs (l ++ m) (l' ++ m') -> RankedBpe rs (m ++ r) (m' ++ r') ->
  decode rs l = decode rs l' -> decode rs m = decode rs m' -> decode rs r = decode rs r' ->
  RankedBpe rs (l ++ m ++ r) (l' ++ m' ++ r').
Proof.
  intros V. induction n as [|n IH]; intros l m r l' m' r' Ln N Nm R1 R2 Dl Dm Dr.
  { exfalso. destruct m as [|x m]; [now apply Nm|]. rewrite !app_length in Ln. cbn in Ln. lia. }
  assert (N1 : NE rs (l ++ m)).
  { unfold NE in *. rewrite app_assoc in N. now apply Forall_app in N as [N _]. }
  assert (N2 : NE rs (m ++ r)).
  { unfold NE in *. now apply Forall_app in N as [_ N]. }
  assert (Lm : 1 <= length m) by (destruct m; [now destruct Nm | cbn; lia]).
  destruct (best rs 0 (l ++ m ++ r)) as [[q i]|] eqn:B.
  - pose proof (best_optimal _ _ _ _ B) as O. clear B.
    pose proof (ne_merge _ _ _ _ V N (proj1 O)) as N'.
    assert (Ln' : length (apply_merge i (256 + q) (l ++ m ++ r)) <= n).
    { destruct (proj1 O) as (p & _ & P). pose proof (merge_length _ _ _ (256 + q) P). lia. }
    apply (Step _ _ q i); [exact O|].
    destruct (le_lt_dec (length l + length m) i) as [Q|Q].
    + (* inside r *)
      destruct (Nat.le_exists_sub (length m) (i - length l)) as (k & Ek & _); [lia|].
      assert (Ei : i = length l + (length m + k)) by lia. subst i. clear Ek Q.
      pose proof (optimal_r _ _ _ _ _ O) as O2.
      pose proof (ranked_forward _ _ _ _ _ R2 O2) as R2'. rewrite !merge_r in *.
      apply IH; auto. rewrite <- Dr.
      apply decode_merge; [exact V | exact (selected_r_inv _ _ _ _ _ (proj1 O2))].
    + destruct (Nat.eq_dec (S i) (length l + length m)) as [Q1|Q1].
      * (* across the border of m and r: impossible *)
        exfalso. destruct (Nat.le_exists_sub (length l) i) as (k & Ek & _); [lia|].
        rewrite Nat.add_comm in Ek. subst i. pose proof (optimal_r _ _ _ _ _ O) as O2.
        pose proof (ranked_forward _ _ _ _ _ R2 O2) as R2'. apply ranked_steps in R2'.
        apply (no_cross rs m r m' r' q k V N2 (proj1 O2)); [lia | exact R2' | exact Dm].
      * assert (O1 : Optimal rs (l ++ m) q i).
        { apply (optimal_l rs (l ++ m) r); [rewrite <- app_assoc; exact O|].
          rewrite app_length. lia. }
        pose proof (ranked_forward _ _ _ _ _ R1 O1) as R1'.
        destruct (lt_eq_lt_dec (S i) (length l)) as [[C|C]|C].
        { (* inside l *)
          rewrite merge_l in * by exact C. apply IH; auto. rewrite <- Dl.
          apply decode_merge; [exact V | exact (selected_l_inv _ _ _ _ _ (proj1 O1) C)]. }
        { (* across the border of l and m: impossible *)
          exfalso. apply ranked_steps in R1'.
          exact (no_cross rs l m l' m' q i V N1 (proj1 O1) C R1' Dl). }
        { (* inside m *)
          destruct (Nat.le_exists_sub (length l) i) as (k & Ek & _); [lia|].
          rewrite Nat.add_comm in Ek. subst i. pose proof (optimal_r _ _ _ _ _ O) as O2.
          pose proof (ranked_forward _ _ _ _ _ R2 O2) as R2'.
          assert (Sm : Selected rs m q k) by (apply (selected_r_inv rs l), (proj1 O1)).
          pose proof (decode_merge rs m q k V Sm) as Dm'.
          rewrite !merge_r in *. rewrite merge_l in * by lia.
          apply IH; auto; rewrite Dm'; auto. }
  - pose proof (best_none _ _ _ B) as Z.
    assert (E1 : l ++ m = l' ++ m').
    { apply (ranked_stuck rs _ _ R1). intros q i H.
      apply (Z q i). rewrite app_assoc. now apply selected_l. }
    assert (E2 : m ++ r = m' ++ r').
    { apply (ranked_stuck rs _ _ R2). intros q i H.
      apply (Z q (length l + i)). now apply selected_r. }
    destruct (ne_split _ _ _ _ _ N1 E1 Dl) as [<- <-].
    destruct (ne_split _ _ _ _ _ N2 E2 eq_refl) as [_ <-]. now apply Stop.
Qed.

(** B7. On a valid table, for ids in range: if x ++ m and m ++ y are canonical and m is not empty, x
    ++ m ++ y is canonical. *)
Theorem corollary_III rs x m y : Valid rs -> InRange rs (x ++ m ++ y) -> m <> [] ->
  Canonical rs (x ++ m) -> Canonical rs (m ++ y) -> Canonical rs (x ++ m ++ y).
Proof.
  intros V R M C1 C2. rewrite canonical_spec in *. rewrite !decode_app in *.
  pose proof R as R'. unfold InRange in R'. apply Forall_app in R' as [Rx R'].
  apply Forall_app in R' as [Rm Ry].
  pose proof (range_bytes rs x V Rx) as Bx. pose proof (range_bytes rs m V Rm) as Bm.
  pose proof (range_bytes rs y V Ry) as By.
  apply (glue rs V _ _ _ _ _ _ _ (le_n _)); auto; try (now apply decode_bytes).
  - apply ne_bytes. apply Forall_app; split; [exact Bx|]. apply Forall_app; now split.
  - rewrite decode_bytes by exact Bm. intros Z. apply M.
    apply (ne_decode_nil rs m); [now apply range_ne | exact Z].
Qed.

(** B10. On a valid table, for ids in range, every slice of a canonical sequence is canonical. *)
Theorem canonical_slice rs x y z : Valid rs -> InRange rs (x ++ y ++ z) ->
  Canonical rs (x ++ y ++ z) -> Canonical rs y.
Proof.
  intros V R C. apply (slice_canonical rs (decode rs (x ++ y ++ z)) x y z V); [|exact C].
  now apply range_bytes.
Qed.

Fixpoint pairwise (P : token -> token -> Prop) (ts : list token) : Prop :=
  match ts with
  | a :: tl => match tl with b :: _ => P a b /\ pairwise P tl | [] => True end
  | [] => True
  end.

(** B7. On a valid table, for ids in range: a sequence is canonical iff each of its tokens and each
    of its adjacent pairs is. *)
Theorem canonical_iff_pairs rs ts : Valid rs -> InRange rs ts ->
  (Canonical rs ts <->
   Forall (fun t => Canonical rs [t]) ts /\ pairwise (fun a b => Canonical rs [a; b]) ts).
Proof.
  intros V R. split.
  - intros C. split.
    + apply Forall_forall. intros t H. apply in_split in H as (x & z & ->).
      exact (canonical_slice rs x [t] z V R C).
    + induction ts as [|a [|b tl] IH]; [exact I | exact I |]. cbn [pairwise]. split.
      * exact (canonical_slice rs [] [a; b] tl V R C).
      * apply IH.
        { now inversion R. }
        { apply (canonical_slice rs [a] (b :: tl) []); [exact V | | ];
            cbn [app]; rewrite app_nil_r; assumption. }
  - intros [F P]. induction ts as [|a [|b tl] IH].
    + reflexivity.
    + now inversion F.
    + cbn [pairwise] in P. destruct P as [Pab P]. inversion F as [|? ? Fa F']; subst.
      inversion R as [|? ? Ra R']; subst.
      apply (corollary_III rs [a] [b] tl V R); [discriminate | exact Pab |].
      exact (IH R' F' P).
Qed.
