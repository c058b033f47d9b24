(* The walk down the two trees at a border (bpe._border_stays), which decides without encoding whether
   two tokens stay apart: undo the merges at the border in reverse order of time, and ask each time
   whether a rule would have joined the pair while it was there. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks Cuts Sweep Glue.
Import ListNotations.

(* ------------------------------------------------------------------- the program *)
(* does a rule of rank below lim join x and y? *)
Definition joined_below (rs : table) (x y lim : nat) : bool :=
  match rank rs x y with Some r => r <? lim | None => false end.

(* Walk back in time from the border x | y.  The later of the two last merges is undone first;
   for equal ranks the right one happened later (leftmost first).  lim is the time at which the
   current border pair died.  n bounds the number of steps; x + y + 1 is always enough. *)
Fixpoint pair_ok (n : nat) (rs : table) (x y lim : nat) : bool :=
  match n with
  | 0 => false
  | S n' =>
      if joined_below rs x y lim then false
      else if (x <? 256) && (y <? 256) then true
      else if y <? x then
        match nth_error rs (x - 256) with
        | Some p => pair_ok n' rs (snd p) y (x - 256)
        | None => false
        end
      else
        match nth_error rs (y - 256) with
        | Some p => pair_ok n' rs x (fst p) (S (y - 256))
        | None => false
        end
  end.

(* a byte is canonical; token 256 + r is iff its two tokens are and nothing joins them before r *)
Fixpoint token_ok_fuel (n : nat) (rs : table) (t : token) : bool :=
  match n with
  | 0 => false
  | S n' =>
      if t <? 256 then true
      else match nth_error rs (t - 256) with
           | Some p => token_ok_fuel n' rs (fst p) && token_ok_fuel n' rs (snd p)
                       && pair_ok (S (fst p + snd p)) rs (fst p) (snd p) (t - 256)
           | None => false
           end
  end.
Definition token_ok (rs : table) (t : token) : bool := token_ok_fuel (S t) rs t.
Definition compatible (rs : table) (x y : token) : bool :=
  pair_ok (S (x + y)) rs x y (length rs).

Fixpoint pairs_ok (rs : table) (ts : list token) : bool :=
  match ts with
  | a :: tl => match tl with b :: _ => compatible rs a b && pairs_ok rs tl | [] => true end
  | [] => true
  end.
Definition is_canonical (rs : table) (ts : list token) : bool :=
  forallb (token_ok rs) ts && pairs_ok rs ts.

(* ---------------------------------------------------------------- the first look-up *)
Definition Good (rs : table) (x y lim : nat) : Prop :=
  forall r, nth_error rs r = Some (x, y) -> lim <= r.

Lemma joined_below_good rs x y lim : Valid rs ->
  (joined_below rs x y lim = false <-> Good rs x y lim).
Proof.
  intros V. unfold joined_below, Good. split.
  - intros H r N. apply (rank_iff rs x y r V) in N. rewrite N in H. now apply Nat.ltb_ge.
  - intros H. destruct (rank rs x y) as [r|] eqn:E; [|reflexivity].
    apply Nat.ltb_ge. apply H. now apply rank_iff.
Qed.

(* ------------------------------------------- two runs side by side, in time order *)
Inductive Both (rs : table) (x y : token) : list token -> list token -> Prop :=
| BothDone : Both rs x y [x] [y]
| BothLeft : forall l m r i, Optimal rs l r i -> AtLeast rs r m ->
    Both rs x y (apply_merge i (256 + r) l) m -> Both rs x y l m
| BothRight : forall l m r i, Optimal rs m r i -> AtLeast rs (S r) l ->
    Both rs x y l (apply_merge i (256 + r) m) -> Both rs x y l m.

Lemma single_stuck rs x q i : ~ Selected rs [x] q i.
Proof. intros (p & _ & [_ B]). destruct i; discriminate. Qed.

Lemma both_exists rs x y : forall n l m, length l + length m <= n ->
  RankedBpe rs l [x] -> RankedBpe rs m [y] -> Both rs x y l m.
Proof.
  induction n as [|n IH]; intros l m L R1 R2.
  { destruct l, m; cbn in L; try lia.
    inversion R1 as [|ts q i z [(p & _ & [A _]) _] _]; destruct i; discriminate. }
  assert (Short : forall ts r i, Optimal rs ts r i ->
                  S (length (apply_merge i (256 + r) ts)) = length ts).
  { intros ts r i [(p & _ & P) _]. apply (merge_length _ _ p). exact P. }
  destruct (best rs 0 l) as [[r1 i1]|] eqn:B1; destruct (best rs 0 m) as [[r2 i2]|] eqn:B2.
  - apply best_optimal in B1, B2. pose proof (Short _ _ _ B1). pose proof (Short _ _ _ B2).
    destruct (le_lt_dec r1 r2) as [Q|Q].
    + apply (BothLeft rs x y l m r1 i1 B1).
      { intros r j S. destruct (proj2 B2 _ _ S); lia. }
      apply IH; [lia | now apply ranked_forward | exact R2].
    + apply (BothRight rs x y l m r2 i2 B2).
      { intros r j S. destruct (proj2 B1 _ _ S); lia. }
      apply IH; [lia | exact R1 | now apply ranked_forward].
  - apply best_optimal in B1. pose proof (Short _ _ _ B1).
    pose proof (best_none _ _ _ B2) as N2.
    apply (BothLeft rs x y l m r1 i1 B1); [intros r j S; now destruct (N2 r j)|].
    apply IH; [lia | now apply ranked_forward | exact R2].
  - apply best_optimal in B2. pose proof (Short _ _ _ B2).
    pose proof (best_none _ _ _ B1) as N1.
    apply (BothRight rs x y l m r2 i2 B2); [intros r j S; now destruct (N1 r j)|].
    apply IH; [lia | exact R1 | now apply ranked_forward].
  - pose proof (ranked_stuck _ _ _ R1 (best_none _ _ _ B1)) as ->.
    pose proof (ranked_stuck _ _ _ R2 (best_none _ _ _ B2)) as ->. apply BothDone.
Qed.

(* Time order: tokens right of the border are older than any merge still to come on the left,
   tokens left of the border are not younger than any merge still to come on the right. *)
Definition Timed (rs : table) (l m : list token) : Prop :=
  (forall r i, Selected rs l r i -> Forall (fun t => t < 256 + r) m) /\
  (forall r i, Selected rs m r i -> Forall (fun t => t < 256 + S r) l).

Lemma forall_merge (P : token -> Prop) rs ts r i : Selected rs ts r i -> Forall P ts ->
  P (256 + r) -> Forall P (apply_merge i (256 + r) ts).
Proof.
  intros S F Q. destruct (merge_shape _ _ _ _ S) as (u & p & w & _ & T & _ & M).
  rewrite M. subst ts. apply Forall_app in F as [Fu F]. inversion F as [|? ? _ F1]; subst.
  inversion F1 as [|? ? _ Fw]; subst. apply Forall_app. split; [exact Fu|]. now constructor.
Qed.

Lemma forall_le (a b : nat) ts : a <= b ->
  Forall (fun t => t < a) ts -> Forall (fun t => t < b) ts.
Proof. intros L. apply Forall_impl. intros t H. lia. Qed.

Lemma timed_left rs l m r i : Valid rs -> Optimal rs l r i -> AtLeast rs r m ->
  Timed rs l m -> Timed rs (apply_merge i (256 + r) l) m.
Proof.
  intros V O A [T1 T2]. split.
  - intros r2 j S. pose proof (key_increases rs l r i V O r2 j S).
    apply (forall_le (256 + r)); [lia|]. exact (T1 r i (proj1 O)).
  - intros r2 j S. pose proof (A _ _ S). apply (forall_merge _ rs l r i (proj1 O)); [|lia].
    exact (T2 r2 j S).
Qed.

Lemma timed_right rs l m r i : Valid rs -> Optimal rs m r i -> AtLeast rs (S r) l ->
  Timed rs l m -> Timed rs l (apply_merge i (256 + r) m).
Proof.
  intros V O A [T1 T2]. split.
  - intros r2 j S. pose proof (A _ _ S). apply (forall_merge _ rs m r i (proj1 O)); [|lia].
    exact (T1 r2 j S).
  - intros r2 j S. pose proof (key_increases rs m r i V O r2 j S).
    apply (forall_le (256 + Datatypes.S r)); [lia|]. exact (T2 r i (proj1 O)).
Qed.

Lemma timed_bytes rs l m : Bytes l -> Bytes m -> Timed rs l m.
Proof. intros B C. split; intros r i _; eapply forall_le; try eassumption; lia. Qed.

(* what one merge on the left does to the last token of l *)
Lemma last_after rs l r i u z : Selected rs l r i -> l = u ++ [z] ->
  (exists u2, u2 <> [] /\ apply_merge i (256 + r) l = u2 ++ [z]) \/
  (exists u2 a, nth_error rs r = Some (a, z) /\
     apply_merge i (256 + r) l = u2 ++ [256 + r]).
Proof.
  intros S E. destruct (merge_shape _ _ _ _ S) as (v & p & w & N & T & _ & M). rewrite M.
  destruct w as [|w0 w].
  - right. exists v, (fst p). split; [|reflexivity]. rewrite E in T.
    replace (v ++ [fst p; snd p]) with ((v ++ [fst p]) ++ [snd p]) in T
      by (rewrite <- app_assoc; reflexivity).
    apply app_inj_tail in T as [_ ->]. now destruct p.
  - left. destruct (@exists_last _ (w0 :: w)) as (w1 & z1 & W); [discriminate|].
    rewrite W in *. exists (v ++ (256 + r) :: w1). split; [destruct v; discriminate|].
    rewrite E in T.
    replace (v ++ fst p :: snd p :: w1 ++ [z1]) with ((v ++ fst p :: snd p :: w1) ++ [z1]) in T
      by (rewrite <- app_assoc; reflexivity).
    apply app_inj_tail in T as [_ ->]. now rewrite <- app_assoc.
Qed.

(* what one merge on the right does to the first token of m *)
Lemma head_after rs m r i w v : Selected rs m r i -> m = w :: v ->
  (exists v2, v2 <> [] /\ apply_merge i (256 + r) m = w :: v2) \/
  (exists v2 b, nth_error rs r = Some (w, b) /\
     apply_merge i (256 + r) m = (256 + r) :: v2).
Proof.
  intros S E. destruct (merge_shape _ _ _ _ S) as (u & p & x & N & T & _ & M). rewrite M.
  rewrite E in T. destruct u as [|u0 u].
  - right. cbn [app] in *. inversion T; subst. exists x, (snd p).
    split; [now destruct p | reflexivity].
  - left. cbn [app] in *. inversion T; subst. exists (u ++ (256 + r) :: x).
    split; [destruct u; discriminate | reflexivity].
Qed.

(* ------------------------------------------------ from the program to the runs *)
(** Key idea: two runs side by side, in the order of time, show at their border exactly the pairs of
    tokens that the walk visits when it goes back in time, and the walk's limit is the moment at
    which such a pair was there last. *)
Lemma walk_visits rs x y : Valid rs -> forall l m, Both rs x y l m -> Timed rs l m ->
  forall n0 lim0, pair_ok n0 rs x y lim0 = true ->
  forall u z w v, l = u ++ [z] -> m = w :: v ->
  exists n lim, pair_ok n rs z w lim = true /\
    ((l = [x] /\ m = [y]) \/
     (forall rc, AtLeast rs (S rc) l -> AtLeast rs rc m -> rc < lim)).
Proof.
  intros V. induction 1 as [|l m r i O A H IH|l m r i O A H IH];
    intros T n0 lim0 P u z w v El Em.
  - destruct u as [|u0 [|u1 u]]; [|discriminate|discriminate]. inversion El; subst.
    inversion Em; subst. exists n0, lim0. auto.
  - specialize (IH (timed_left rs l m r i V O A T) n0 lim0 P).
    assert (K : forall rc, AtLeast rs (S rc) l ->
                AtLeast rs (S rc) (apply_merge i (256 + r) l)).
    { intros rc Q r2 j S2. pose proof (Q _ _ (proj1 O)).
      pose proof (key_increases rs l r i V O r2 j S2). lia. }
    destruct (last_after rs l r i u z (proj1 O) El) as [(u2 & U & M)|(u2 & a & N & M)].
    + destruct (IH u2 z w v M Em) as (n & lim & P' & [[F _] | C]).
      { exfalso. rewrite F in M. destruct u2 as [|? [|? ?]]; [now apply U | discriminate | discriminate]. }
      exists n, lim. split; [exact P'|]. right. intros rc Q1 Q2. apply C; [now apply K | exact Q2].
    + destruct (IH u2 (256 + r) w v M Em) as (n & lim & P' & _).
      assert (W : w < 256 + r).
      { pose proof (proj1 T _ _ (proj1 O)) as F. rewrite Em in F. now inversion F. }
      destruct n as [|n]; [discriminate|]. cbn [pair_ok] in P'.
      destruct (joined_below rs (256 + r) w lim); [discriminate|].
      replace (256 + r <? 256) with false in P' by (symmetry; apply Nat.ltb_ge; lia).
      cbn [andb] in P'. apply Nat.ltb_lt in W. rewrite W in P'.
      replace (256 + r - 256) with r in P' by lia. rewrite N in P'. cbn [snd] in P'.
      exists n, r. split; [exact P'|]. right. intros rc Q _. exact (Q _ _ (proj1 O)).
  - specialize (IH (timed_right rs l m r i V O A T) n0 lim0 P).
    assert (K : forall rc, AtLeast rs rc m -> AtLeast rs rc (apply_merge i (256 + r) m)).
    { intros rc Q r2 j S2. pose proof (Q _ _ (proj1 O)).
      pose proof (key_increases rs m r i V O r2 j S2). lia. }
    destruct (head_after rs m r i w v (proj1 O) Em) as [(v2 & U & M)|(v2 & b & N & M)].
    + destruct (IH u z w v2 El M) as (n & lim & P' & [[_ F] | C]).
      { exfalso. rewrite F in M. inversion M; subst. now apply U. }
      exists n, lim. split; [exact P'|]. right. intros rc Q1 Q2. apply C; [exact Q1 | now apply K].
    + destruct (IH u z (256 + r) v2 El M) as (n & lim & P' & _).
      assert (W : z < 256 + S r).
      { pose proof (proj2 T _ _ (proj1 O)) as F. rewrite El in F.
        apply Forall_app in F as [_ F]. now inversion F. }
      destruct n as [|n]; [discriminate|]. cbn [pair_ok] in P'.
      destruct (joined_below rs z (256 + r) lim); [discriminate|].
      replace (256 + r <? 256) with false in P' by (symmetry; apply Nat.ltb_ge; lia).
      rewrite andb_false_r in P'.
      replace (256 + r <? z) with false in P' by (symmetry; apply Nat.ltb_ge; lia).
      replace (256 + r - 256) with r in P' by lia. rewrite N in P'. cbn [fst] in P'.
      exists n, (S r). split; [exact P'|]. right. intros rc _ Q. pose proof (Q _ _ (proj1 O)). lia.
Qed.

Lemma crossing_pair rs l m q j u z w v : Selected rs (l ++ m) q j -> S j = length l ->
  l = u ++ [z] -> m = w :: v -> nth_error rs q = Some (z, w).
Proof.
  intros (p & N & [A B]) L El Em. rewrite N. f_equal. subst l m.
  rewrite app_length in L. cbn [length] in L. rewrite <- app_assoc in A, B. cbn [app] in A, B.
  replace j with (length u) in * by lia.
  rewrite nth_error_app2, Nat.sub_diag in A by lia. rewrite nth_error_app2 in B by lia.
  replace (S (length u) - length u) with 1 in B by lia. cbn in A, B.
  destruct p. cbn in *. congruence.
Qed.

Lemma crossing_selected rs q u z w v : nth_error rs q = Some (z, w) ->
  Selected rs ((u ++ [z]) ++ w :: v) q (length u).
Proof.
  intros N. exists (z, w). split; [exact N|]. rewrite <- app_assoc. cbn [app].
  split; rewrite nth_error_app2 by lia.
  - now rewrite Nat.sub_diag.
  - now replace (S (length u) - length u) with 1 by lia.
Qed.

Lemma where_selected rs l m q j : Selected rs (l ++ m) q j ->
  (S j < length l /\ Selected rs l q j) \/ S j = length l \/
  (exists k, j = length l + k /\ Selected rs m q k).
Proof.
  intros S. destruct (lt_eq_lt_dec (Datatypes.S j) (length l)) as [[L|L]|L].
  - left. split; [exact L | exact (selected_l_inv _ _ _ _ _ S L)].
  - right. left. exact L.
  - right. right. exists (j - length l). split; [lia|].
    apply (selected_r_inv rs l). now replace (length l + (j - length l)) with j by lia.
Qed.

Lemma selected_inside rs l q i : Selected rs l q i -> S i < length l.
Proof. intros (p & _ & [_ B]). apply nth_error_Some. congruence. Qed.

Lemma both_shape rs x y l m : Both rs x y l m ->
  (exists u z, l = u ++ [z]) /\ (exists w v, m = w :: v).
Proof.
  assert (X : forall ts q i, Selected rs ts q i ->
              (exists u z, ts = u ++ [z]) /\ (exists w v, ts = w :: v)).
  { intros ts q i (p & _ & [A _]). destruct ts as [|t ts]; [destruct i; discriminate|].
    split; [|eauto]. destruct (@exists_last _ (t :: ts)) as (u & z & E); [discriminate|]. eauto. }
  induction 1 as [|l m r i O A H [_ IH]|l m r i O A H [IH _]].
  - split; [exists [], x; reflexivity | eauto].
  - split; [exact (proj1 (X _ _ _ (proj1 O))) | exact IH].
  - split; [exact IH | exact (proj2 (X _ _ _ (proj1 O)))].
Qed.

(* If the walk accepts, the border is never crossed: the run of l ++ m is the two runs. *)
Lemma walk_accepts rs x y n0 lim0 : Valid rs -> pair_ok n0 rs x y lim0 = true ->
  forall l m, Both rs x y l m -> Timed rs l m -> Steps rs (l ++ m) [x; y].
Proof.
  intros V P l m H. induction H as [|l m r i O A H IH|l m r i O A H IH]; intros T.
  - apply Here.
  - pose proof (BothLeft rs x y l m r i O A H) as H0.
    destruct (both_shape _ _ _ _ _ H0) as [(u & z & El) (w & v & Em)].
    destruct (walk_visits rs x y V l m H0 T n0 lim0 P u z w v El Em)
      as (n & lim & P' & [[-> _] | C]).
    { exfalso. exact (single_stuck _ _ _ _ (proj1 O)). }
    pose proof (selected_inside _ _ _ _ (proj1 O)) as Li.
    apply (There _ _ r i).
    + split; [now apply selected_l; apply (proj1 O)|]. intros q j S.
      destruct (where_selected rs l m q j S) as [[L Sl]|[L|(k & -> & Sm)]].
      * exact (proj2 O _ _ Sl).
      * pose proof (crossing_pair rs l m q j u z w v S L El Em) as N.
        destruct n as [|n]; [discriminate|]. cbn [pair_ok] in P'.
        destruct (joined_below rs z w lim) eqn:J; [discriminate|].
        apply (joined_below_good rs z w lim V) in J. specialize (J q N).
        destruct (le_lt_dec r q) as [Q|Q]; [lia|]. exfalso.
        assert (q < lim); [|lia]. apply C.
        { intros r2 j2 S2. pose proof (proj2 O _ _ S2). lia. }
        { intros r2 j2 S2. pose proof (A _ _ S2). lia. }
      * pose proof (A _ _ Sm). lia.
    + rewrite merge_l by exact Li. apply IH. now apply timed_left.
  - pose proof (BothRight rs x y l m r i O A H) as H0.
    destruct (both_shape _ _ _ _ _ H0) as [(u & z & El) (w & v & Em)].
    destruct (walk_visits rs x y V l m H0 T n0 lim0 P u z w v El Em)
      as (n & lim & P' & [[_ ->] | C]).
    { exfalso. exact (single_stuck _ _ _ _ (proj1 O)). }
    apply (There _ _ r (length l + i)).
    + split; [apply selected_r; exact (proj1 O)|]. intros q j S.
      destruct (where_selected rs l m q j S) as [[L Sl]|[L|(k & -> & Sm)]].
      * pose proof (A _ _ Sl). lia.
      * pose proof (crossing_pair rs l m q j u z w v S L El Em) as N.
        destruct n as [|n]; [discriminate|]. cbn [pair_ok] in P'.
        destruct (joined_below rs z w lim) eqn:J; [discriminate|].
        apply (joined_below_good rs z w lim V) in J. specialize (J q N).
        destruct (le_lt_dec q r) as [Q|Q]; [|lia]. exfalso.
        assert (q < lim); [|lia]. apply C.
        { intros r2 j2 S2. pose proof (A _ _ S2). lia. }
        { intros r2 j2 S2. pose proof (proj2 O _ _ S2). lia. }
      * pose proof (proj2 O _ _ Sm). lia.
    + rewrite merge_r. apply IH. now apply timed_right.
Qed.

(* ------------------------------------------------ from the runs to the program *)
(* the walk accepts below x | y: whatever the limit, only the first look-up can refuse *)
Definition Below (rs : table) (x y : token) : Prop :=
  forall n lim, x + y < n -> Good rs x y lim -> pair_ok n rs x y lim = true.

Lemma below_bytes rs x y : Valid rs -> x < 256 -> y < 256 -> Below rs x y.
Proof.
  intros V X Y n lim L G. destruct n as [|n]; [lia|]. cbn [pair_ok].
  apply (joined_below_good rs x y lim V) in G. rewrite G.
  apply Nat.ltb_lt in X, Y. now rewrite X, Y.
Qed.

Lemma below_left rs r a z w : Valid rs -> nth_error rs r = Some (a, z) -> w < 256 + r ->
  Good rs z w r -> Below rs z w -> Below rs (256 + r) w.
Proof.
  intros V N W G B n lim L G'. destruct n as [|n]; [lia|]. cbn [pair_ok].
  apply (joined_below_good rs _ _ lim V) in G'. rewrite G'.
  replace (256 + r <? 256) with false by (symmetry; apply Nat.ltb_ge; lia). cbn [andb].
  apply Nat.ltb_lt in W. rewrite W. replace (256 + r - 256) with r by lia. rewrite N. cbn [snd].
  apply B; [|exact G]. destruct (proj2 V _ _ N) as [_ Z]. cbn [snd] in Z. lia.
Qed.

Lemma below_right rs r w b z : Valid rs -> nth_error rs r = Some (w, b) -> z < 256 + S r ->
  Good rs z w (S r) -> Below rs z w -> Below rs z (256 + r).
Proof.
  intros V N W G B n lim L G'. destruct n as [|n]; [lia|]. cbn [pair_ok].
  apply (joined_below_good rs _ _ lim V) in G'. rewrite G'.
  replace (256 + r <? 256) with false by (symmetry; apply Nat.ltb_ge; lia).
  rewrite andb_false_r.
  replace (256 + r <? z) with false by (symmetry; apply Nat.ltb_ge; lia).
  replace (256 + r - 256) with r by lia. rewrite N. cbn [fst].
  apply B; [|exact G]. destruct (proj2 V _ _ N) as [Z _]. cbn [fst] in Z. lia.
Qed.

(* a step that is optimal in l ++ m must be the one the derivation takes *)
Lemma steps_forward rs ts z r i : Steps rs ts z -> Optimal rs ts r i ->
  ts = z \/ Steps rs (apply_merge i (256 + r) ts) z.
Proof.
  intros H O. inversion H as [ts'|ts' r' i' z' O' R]; subst; [now left|]. right.
  destruct (optimal_unique _ _ _ _ _ _ O O') as [-> ->]. exact R.
Qed.

(* If the run of l ++ m ends in [x; y], the walk finds nothing to object to below x | y. *)
Lemma runs_accepted rs x y : Valid rs -> forall l m, Both rs x y l m -> Timed rs l m ->
  NE rs (l ++ m) -> decode rs l = decode rs [x] -> Steps rs (l ++ m) [x; y] ->
  forall u z w v, l = u ++ [z] -> m = w :: v -> Below rs z w -> Below rs x y.
Proof.
  intros V l m H. induction H as [|l m r i O A H IH|l m r i O A H IH];
    intros T N D R u z w v El Em B.
  - destruct u as [|u0 [|u1 u]]; [|discriminate|discriminate]. inversion El; subst.
    inversion Em; subst. exact B.
  - pose proof (selected_inside _ _ _ _ (proj1 O)) as Li.
    assert (Long : l ++ m <> [x; y]).
    { intros E. apply (f_equal (@length nat)) in E. rewrite app_length, Em in E. cbn in E. lia. }
    (* no crossing pair can be optimal *)
    assert (NC : forall q, nth_error rs q = Some (z, w) -> q < r -> False).
    { intros q Nq Q. assert (Oq : Optimal rs (l ++ m) q (length u)).
      { split; [rewrite El, Em; now apply crossing_selected|]. intros r2 j S.
        destruct (where_selected rs l m r2 j S) as [[L Sl]|[L|(k & -> & Sm)]].
        - pose proof (proj2 O _ _ Sl). lia.
        - pose proof (crossing_pair rs l m r2 j u z w v S L El Em) as N2.
          right. split; [|rewrite El, app_length in L; cbn in L; lia].
          apply (proj1 (NoDup_nth_error rs) (proj1 V)); [apply nth_error_Some; congruence|].
          congruence.
        - pose proof (A _ _ Sm). lia. }
      destruct (steps_forward _ _ _ _ _ R Oq) as [E|R']; [exact (Long E)|].
      apply (no_cross rs l m [x] [y] q (length u) V N (proj1 Oq)); [|exact R' | exact D].
      rewrite El, app_length. cbn. lia. }
    assert (Ol : Optimal rs (l ++ m) r i).
    { split; [apply selected_l; exact (proj1 O)|]. intros r2 j S.
      destruct (where_selected rs l m r2 j S) as [[L Sl]|[L|(k & -> & Sm)]].
      - exact (proj2 O _ _ Sl).
      - pose proof (crossing_pair rs l m r2 j u z w v S L El Em) as N2.
        destruct (le_lt_dec r r2) as [Q|Q]; [lia|]. destruct (NC r2 N2 Q).
      - pose proof (A _ _ Sm). lia. }
    destruct (steps_forward _ _ _ _ _ R Ol) as [E|R']; [destruct (Long E)|].
    pose proof (ne_merge _ _ _ _ V N (proj1 Ol)) as N'. rewrite merge_l in R', N' by exact Li.
    assert (D' : decode rs (apply_merge i (256 + r) l) = decode rs [x])
      by (rewrite (decode_merge rs l r i V (proj1 O)); exact D).
    specialize (IH (timed_left rs l m r i V O A T) N' D' R').
    destruct (last_after rs l r i u z (proj1 O) El) as [(u2 & _ & M)|(u2 & a & Na & M)].
    + exact (IH u2 z w v M Em B).
    + apply (IH u2 (256 + r) w v M Em).
      apply (below_left rs r a z w V Na); [| |exact B].
      * pose proof (proj1 T _ _ (proj1 O)) as F. rewrite Em in F. now inversion F.
      * intros q Nq. destruct (le_lt_dec r q) as [Q|Q]; [exact Q|]. destruct (NC q Nq Q).
  - pose proof (selected_inside _ _ _ _ (proj1 O)) as Li.
    assert (Long : l ++ m <> [x; y]).
    { intros E. apply (f_equal (@length nat)) in E. rewrite app_length, El, app_length in E.
      cbn in E. lia. }
    assert (NC : forall q, nth_error rs q = Some (z, w) -> q <= r -> False).
    { intros q Nq Q. assert (Oq : Optimal rs (l ++ m) q (length u)).
      { split; [rewrite El, Em; now apply crossing_selected|]. intros r2 j S.
        destruct (where_selected rs l m r2 j S) as [[L Sl]|[L|(k & -> & Sm)]].
        - pose proof (A _ _ Sl). lia.
        - pose proof (crossing_pair rs l m r2 j u z w v S L El Em) as N2.
          right. split; [|rewrite El, app_length in L; cbn in L; lia].
          apply (proj1 (NoDup_nth_error rs) (proj1 V)); [apply nth_error_Some; congruence|].
          congruence.
        - pose proof (proj2 O _ _ Sm). rewrite El, app_length. cbn [length]. lia. }
      destruct (steps_forward _ _ _ _ _ R Oq) as [E|R']; [exact (Long E)|].
      apply (no_cross rs l m [x] [y] q (length u) V N (proj1 Oq)); [|exact R' | exact D].
      rewrite El, app_length. cbn. lia. }
    assert (Or : Optimal rs (l ++ m) r (length l + i)).
    { split; [apply selected_r; exact (proj1 O)|]. intros r2 j S.
      destruct (where_selected rs l m r2 j S) as [[L Sl]|[L|(k & -> & Sm)]].
      - pose proof (A _ _ Sl). lia.
      - pose proof (crossing_pair rs l m r2 j u z w v S L El Em) as N2.
        destruct (le_lt_dec r2 r) as [Q|Q]; [destruct (NC r2 N2 Q) | lia].
      - pose proof (proj2 O _ _ Sm). lia. }
    destruct (steps_forward _ _ _ _ _ R Or) as [E|R']; [destruct (Long E)|].
    pose proof (ne_merge _ _ _ _ V N (proj1 Or)) as N'. rewrite merge_r in R', N'.
    specialize (IH (timed_right rs l m r i V O A T) N' D R').
    destruct (head_after rs m r i w v (proj1 O) Em) as [(v2 & _ & M)|(v2 & b & Nb & M)].
    + exact (IH u z w v2 El M B).
    + apply (IH u z (256 + r) v2 El M).
      apply (below_right rs r w b z V Nb); [| |exact B].
      * pose proof (proj2 T _ _ (proj1 O)) as F. rewrite El in F.
        apply Forall_app in F as [_ F]. now inversion F.
      * intros q Nq. destruct (le_lt_dec q r) as [Q|Q]; [destruct (NC q Nq Q) | exact Q].
Qed.
