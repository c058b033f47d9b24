(* Two encoders as they ship: merging.encode_textbook, which looks at every pair anew, and
   merging.encode_short, which keeps the rank of every gap in a list and repairs two places after a
   merge. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks.
Import ListNotations.

(* ------------------------------------------------------------- encode_textbook *)
(* the (rank, position) of every pair that has a rule *)
Fixpoint found (rs : table) (i : nat) (ts : list token) : list (nat * nat) :=
  match ts with
  | a :: tl =>
      match tl with
      | b :: _ => match rank rs a b with
                  | Some r => (r, i) :: found rs (S i) tl
                  | None => found rs (S i) tl
                  end
      | [] => []
      end
  | [] => []
  end.

Definition before (j k : nat * nat) : bool :=
  (fst j <? fst k) || ((fst j =? fst k) && (snd j <=? snd k)).

Fixpoint least (l : list (nat * nat)) : option (nat * nat) :=
  match l with
  | [] => None
  | k :: l' => match least l' with
               | None => Some k
               | Some k' => if before k k' then Some k else Some k'
               end
  end.

Fixpoint run_textbook (fuel : nat) (rs : table) (ts : list token) : list token :=
  match fuel with
  | 0 => ts
  | S f => match least (found rs 0 ts) with
           | None => ts
           | Some (r, i) => run_textbook f rs (apply_merge i (256 + r) ts)
           end
  end.
Definition encode_textbook (rs : table) (bs : list nat) : list token :=
  run_textbook (length bs) rs (initial bs).

Lemma found_iff rs ts : forall k r i, In (r, i) (found rs k ts) <->
  exists j x y, i = k + j /\ nth_error ts j = Some x /\ nth_error ts (S j) = Some y /\
    rank rs x y = Some r.
Proof.
  induction ts as [|a [|b tl] IH]; intros k r i.
  - split; [intros [] | intros (j & x & y & _ & X & _)]. destruct j; discriminate.
  - split; [intros [] | intros (j & x & y & _ & _ & Y & _)]. destruct j; discriminate.
  - assert (G : In (r, i) (found rs (S k) (b :: tl)) <->
      exists j x y, i = k + S j /\ nth_error (a :: b :: tl) (S j) = Some x /\
        nth_error (a :: b :: tl) (S (S j)) = Some y /\ rank rs x y = Some r).
    { rewrite IH. split; intros (j & x & y & E & X); exists j, x, y; (split; [lia | exact X]). }
    change (found rs k (a :: b :: tl)) with
      (match rank rs a b with Some r => (r, k) :: found rs (S k) (b :: tl)
       | None => found rs (S k) (b :: tl) end).
    assert (H : (exists j x y, i = k + j /\ nth_error (a :: b :: tl) j = Some x /\
        nth_error (a :: b :: tl) (S j) = Some y /\ rank rs x y = Some r) <->
      (i = k /\ rank rs a b = Some r) \/ In (r, i) (found rs (S k) (b :: tl))).
    { rewrite G. split.
      - intros ([|j] & x & y & E & X & Y & R).
        + left. cbn in X, Y. inversion X; inversion Y; subst. split; [lia | exact R].
        + right. exists j, x, y. auto.
      - intros [[-> R] | (j & x & y & E & X)].
        + exists 0, a, b. cbn. repeat split; [lia | exact R].
        + exists (S j), x, y. auto. }
    rewrite H. destruct (rank rs a b) as [q|]; cbn [In].
    + split; (intros [E|E]; [left|now right]).
      * inversion E; auto.
      * destruct E as [-> E]. now inversion E.
    + split; [now right | intros [[_ E]|E]; [discriminate | exact E]].
Qed.

Lemma before_iff j k : before j k = true <-> fst j < fst k \/ (fst j = fst k /\ snd j <= snd k).
Proof.
  unfold before. rewrite orb_true_iff, andb_true_iff, Nat.ltb_lt, Nat.eqb_eq, Nat.leb_le. tauto.
Qed.

Lemma least_some l : forall k, least l = Some k ->
  In k l /\ forall k', In k' l -> fst k < fst k' \/ (fst k = fst k' /\ snd k <= snd k').
Proof.
  induction l as [|a l IH]; intros k H; [discriminate|]. cbn [least] in H.
  destruct (least l) as [m|] eqn:M.
  - destruct (IH m eq_refl) as [I L]. destruct (before a m) eqn:B.
    + inversion H; subst. apply before_iff in B. split; [now left|].
      intros k' [<-|I']; [lia|]. specialize (L k' I'). lia.
    + inversion H; subst. split; [now right|]. intros k' [<-|I']; [|now apply L].
      assert (~ (fst a < fst k \/ (fst a = fst k /\ snd a <= snd k)))
        by (intros Q; apply before_iff in Q; congruence). lia.
  - inversion H; subst. split; [now left|]. intros k' [<-|I']; [lia|].
    destruct l; [destruct I' | cbn in M]. destruct (least l); [destruct (before p p0)|]; discriminate.
Qed.

Lemma least_none l : least l = None -> l = [].
Proof.
  destruct l as [|a l]; [reflexivity|]. cbn. destruct (least l); [destruct (before a p)|]; discriminate.
Qed.

Lemma least_found_optimal rs ts r i : least (found rs 0 ts) = Some (r, i) -> Optimal rs ts r i.
Proof.
  intros H. apply least_some in H as [I L]. apply found_iff in I as (j & x & y & E & X & Y & R).
  cbn in E. subst j. split; [exact (rank_selects rs ts i x y r X Y R)|]. intros q k S.
  destruct (selected_rank rs ts q k S) as (x' & y' & r' & X' & Y' & R' & Lq).
  assert (I' : In (r', k) (found rs 0 ts)) by (apply found_iff; exists k, x', y'; auto).
  specialize (L _ I'). cbn in L. lia.
Qed.

Lemma least_found rs ts : least (found rs 0 ts) = best rs 0 ts.
Proof.
  destruct (least (found rs 0 ts)) as [[r i]|] eqn:F; destruct (best rs 0 ts) as [[r' i']|] eqn:B.
  - apply least_found_optimal in F. apply best_optimal in B.
    destruct (optimal_unique _ _ _ _ _ _ F B). congruence.
  - apply least_found_optimal in F. destruct (best_none _ _ _ B _ _ (proj1 F)).
  - apply least_none in F. apply best_optimal in B.
    destruct (selected_rank _ _ _ _ (proj1 B)) as (x & y & q & X & Y & R & _).
    assert (I : In (q, i') (found rs 0 ts)) by (apply found_iff; exists i', x, y; auto).
    rewrite F in I. destruct I.
  - reflexivity.
Qed.

(** B2. encode_textbook, which collects the (rank, position) of every pair that has a rule, merges
    at the least and begins again, returns the tokens of the specification, for every table and
    every byte string. *)
Theorem encode_textbook_correct rs bs : encode_textbook rs bs = encode rs bs.
Proof.
  unfold encode_textbook, encode. generalize (initial bs) as ts.
  induction (length bs) as [|n IH]; intros ts; [reflexivity|]. cbn [run_textbook run].
  rewrite least_found. destruct (best rs 0 ts) as [[r i]|]; [apply IH | reflexivity].
Qed.

(* ----------------------------------------------------------------- encode_short *)
Definition gap (rs : table) (a b : token) : nat :=
  match rank rs a b with Some r => r | None => length rs end.

(* the rank of every gap; length rs, which is no rank, where no rule fits *)
Fixpoint gaps (rs : table) (ts : list token) : list nat :=
  match ts with
  | a :: tl => match tl with b :: _ => gap rs a b :: gaps rs tl | [] => [] end
  | [] => []
  end.

(* min(list), with no_rule for an empty one *)
Definition lowest (no_rule : nat) (l : list nat) : nat := fold_right Nat.min no_rule l.
(* list.index(r) *)
Fixpoint index_of (r : nat) (l : list nat) : nat :=
  match l with [] => 0 | q :: l' => if q =? r then 0 else S (index_of r l') end.
(* list[i] = v, and del list[i] *)
Definition set_at (i v : nat) (l : list nat) : list nat :=
  firstn i l ++ match skipn i l with [] => [] | _ :: l' => v :: l' end.
Definition del_at (i : nat) (l : list nat) : list nat := firstn i l ++ skipn (S i) l.

Definition gap_between (rs : table) (ts : list token) (i : nat) : nat :=
  match nth_error ts i, nth_error ts (S i) with
  | Some a, Some b => gap rs a b
  | _, _ => length rs
  end.

(* after a merge at i: one gap is gone, its two neighbours are looked up anew *)
Definition repaired (rs : table) (i : nat) (ts : list token) (g : list nat) : list nat :=
  let g1 := del_at i g in
  let g2 := if 0 <? i then set_at (i - 1) (gap_between rs ts (i - 1)) g1 else g1 in
  if i <? length g2 then set_at i (gap_between rs ts i) g2 else g2.

Fixpoint run_short (fuel : nat) (rs : table) (ts : list token) (g : list nat) : list token :=
  match fuel with
  | 0 => ts
  | S f =>
      let r := lowest (length rs) g in
      if r <? length rs then
        let i := index_of r g in
        let ts' := apply_merge i (256 + r) ts in
        run_short f rs ts' (repaired rs i ts' g)
      else ts
  end.
Definition encode_short (rs : table) (bs : list nat) : list token :=
  run_short (length bs) rs (initial bs) (gaps rs (initial bs)).

Lemma gaps_cut rs u x v : gaps rs (u ++ x :: v) = gaps rs (u ++ [x]) ++ gaps rs (x :: v).
Proof.
  induction u as [|a u IH]; [reflexivity|]. cbn [app]. destruct u as [|b u]; [reflexivity|].
  cbn [app] in *. change (gaps rs (a :: b :: u ++ x :: v)) with
    (gap rs a b :: gaps rs (b :: u ++ x :: v)). rewrite IH. reflexivity.
Qed.

Lemma gaps_length rs u x : length (gaps rs (u ++ [x])) = length u.
Proof.
  induction u as [|a u IH]; [reflexivity|]. cbn [app]. destruct u as [|b u]; [reflexivity|].
  cbn [app] in *. change (gaps rs (a :: b :: u ++ [x])) with (gap rs a b :: gaps rs (b :: u ++ [x])).
  cbn [length]. now rewrite IH.
Qed.

Lemma del_at_app a l j : del_at (length a + j) (a ++ l) = a ++ del_at j l.
Proof.
  unfold del_at. rewrite firstn_app_2. rewrite skipn_app, skipn_all2 by lia.
  replace (S (length a + j) - length a) with (S j) by lia. now rewrite <- app_assoc.
Qed.

Lemma set_at_app a l j v : set_at (length a + j) v (a ++ l) = a ++ set_at j v l.
Proof.
  unfold set_at. rewrite firstn_app_2. rewrite skipn_app, skipn_all2 by lia.
  replace (length a + j - length a) with j by lia. now rewrite <- app_assoc.
Qed.

Lemma nth_error_here {A} (u : list A) x v : nth_error (u ++ x :: v) (length u) = Some x.
Proof. now rewrite nth_error_app2, Nat.sub_diag by lia. Qed.

Lemma gap_between_at rs u x y v : gap_between rs (u ++ x :: y :: v) (length u) = gap rs x y.
Proof.
  unfold gap_between. rewrite nth_error_here.
  change (u ++ x :: y :: v) with (u ++ [x] ++ y :: v). rewrite app_assoc.
  replace (S (length u)) with (length (u ++ [x])) by (rewrite app_length; cbn; lia).
  now rewrite nth_error_here.
Qed.

(** Key idea: one merge changes the two gaps beside it and no other, so the list of ranks is
    repaired in two places. *)
Lemma repaired_gaps rs ts i p t : PairAt ts i p ->
  repaired rs i (apply_merge i t ts) (gaps rs ts) = gaps rs (apply_merge i t ts).
Proof.
  intros P. pose proof (pairat_split _ _ _ P) as E. unfold apply_merge.
  assert (L : length (firstn i ts) = i).
  { rewrite firstn_length. destruct P as [P _].
    assert (i < length ts) by (apply nth_error_Some; congruence). lia. }
  revert E L. generalize (firstn i ts) as u, (skipn (i + 2) ts) as w. intros u w -> <-.
  destruct p as [a b]. cbn [fst snd]. clear P. unfold repaired.
  destruct u as [|u0 u1].
  - cbn [length app]. change (0 <? 0) with false. cbv iota.
    change (gaps rs (a :: b :: w)) with (gap rs a b :: gaps rs (b :: w)).
    change (del_at 0 (gap rs a b :: gaps rs (b :: w))) with (gaps rs (b :: w)).
    destruct w as [|c w]; reflexivity.
  - destruct (@exists_last _ (u0 :: u1)) as (v & l & ->); [discriminate|].
    rewrite <- !app_assoc. cbn [app]. rewrite (gaps_cut rs v l), (gaps_cut rs v l (t :: w)).
    pose proof (gaps_length rs v l) as G. revert G. generalize (gaps rs (v ++ [l])) as g. intros g G.
    change (gaps rs (l :: a :: b :: w)) with (gap rs l a :: gap rs a b :: gaps rs (b :: w)).
    change (gaps rs (l :: t :: w)) with (gap rs l t :: gaps rs (t :: w)).
    rewrite app_length. cbn [length].
    replace (length v + 1) with (length g + 1) by lia.
    replace (0 <? length g + 1) with true by (symmetry; apply Nat.ltb_lt; lia).
    replace (length g + 1 - 1) with (length g + 0) by lia.
    rewrite del_at_app, set_at_app.
    change (del_at 1 (gap rs l a :: gap rs a b :: gaps rs (b :: w))) with
      (gap rs l a :: gaps rs (b :: w)).
    change (set_at 0 (gap_between rs (v ++ l :: t :: w) (length g + 0))
      (gap rs l a :: gaps rs (b :: w))) with
      (gap_between rs (v ++ l :: t :: w) (length g + 0) :: gaps rs (b :: w)).
    replace (length g + 0) with (length v) by lia. rewrite gap_between_at.
    rewrite app_length. cbn [length]. destruct w as [|c w].
    + change (gaps rs [b]) with (@nil nat). cbn [length].
      replace (length g + 1 <? length g + 1) with false by (symmetry; apply Nat.ltb_ge; lia).
      reflexivity.
    + change (gaps rs (b :: c :: w)) with (gap rs b c :: gaps rs (c :: w)).
      change (gaps rs (t :: c :: w)) with (gap rs t c :: gaps rs (c :: w)). cbn [length].
      replace (length g + 1 <? length g + S (S (length (gaps rs (c :: w))))) with true
        by (symmetry; apply Nat.ltb_lt; lia).
      rewrite set_at_app.
      change (v ++ l :: t :: c :: w) with (v ++ [l] ++ t :: c :: w). rewrite app_assoc.
      replace (length g + 1) with (length (v ++ [l])) by (rewrite app_length; cbn; lia).
      rewrite gap_between_at. reflexivity.
Qed.

Lemma lowest_spec d l : lowest d l < d -> nth_error l (index_of (lowest d l) l) = Some (lowest d l) /\
  forall j q, nth_error l j = Some q -> lowest d l < q \/ (lowest d l = q /\ index_of (lowest d l) l <= j).
Proof.
  assert (Low : forall j q, nth_error l j = Some q -> lowest d l <= q).
  { induction l as [|a l IH]; intros j q H; [destruct j; discriminate|]. unfold lowest in *.
    cbn [fold_right]. destruct j as [|j]; cbn in H.
    - inversion H. lia.
    - specialize (IH _ _ H). lia. }
  assert (Has : lowest d l < d -> In (lowest d l) l).
  { clear. induction l as [|a l IH]; unfold lowest in *; cbn [fold_right]; [lia|]. intros L.
    destruct (Nat.min_dec a (fold_right Nat.min d l)) as [E|E]; rewrite E in *; [now left|].
    right. now apply IH. }
  intros L. specialize (Has L). revert Low Has. generalize (lowest d l) as r. intros r Low Has.
  assert (G : forall l, In r l -> nth_error l (index_of r l) = Some r /\
    forall j, nth_error l j = Some r -> index_of r l <= j).
  { clear. induction l as [|a l IH]; intros I; [destruct I|]. cbn [index_of].
    destruct (a =? r) eqn:E.
    - apply Nat.eqb_eq in E. subst. split; [reflexivity | intros; lia].
    - apply Nat.eqb_neq in E. destruct I as [I|I]; [contradiction|]. destruct (IH I) as [A B].
      split; [exact A|]. intros [|j] H; cbn in H; [congruence|]. specialize (B j H). lia. }
  destruct (G l Has) as [A B]. split; [exact A|]. intros j q H. specialize (Low j q H).
  destruct (Nat.eq_dec r q) as [->|N]; [right; split; [reflexivity | now apply B] | left; lia].
Qed.

Lemma gaps_nth rs ts : forall i q, nth_error (gaps rs ts) i = Some q <->
  exists x y, nth_error ts i = Some x /\ nth_error ts (S i) = Some y /\ q = gap rs x y.
Proof.
  induction ts as [|a [|b tl] IH]; intros i q.
  - split; [destruct i; discriminate | intros (x & y & X & _); destruct i; discriminate].
  - split; [destruct i; discriminate | intros (x & y & _ & Y & _); destruct i; discriminate].
  - change (gaps rs (a :: b :: tl)) with (gap rs a b :: gaps rs (b :: tl)). destruct i as [|i].
    + cbn. split; [intros H; inversion H; eauto | intros (x & y & X & Y & ->); congruence].
    + exact (IH i q).
Qed.

Lemma lowest_best rs ts : let r := lowest (length rs) (gaps rs ts) in
  best rs 0 ts = if r <? length rs then Some (r, index_of r (gaps rs ts)) else None.
Proof.
  intros r. destruct (best rs 0 ts) as [[q j]|] eqn:B.
  - apply best_optimal in B. destruct (selected_rank _ _ _ _ (proj1 B)) as (x & y & q' & X & Y & R & L).
    assert (Q : nth_error (gaps rs ts) j = Some q').
    { apply gaps_nth. exists x, y. unfold gap. now rewrite R. }
    assert (Lr : r < length rs).
    { pose proof (rank_bound _ _ _ _ R). unfold r.
      assert (Low : forall d l j q, nth_error l j = Some q -> lowest d l <= q).
      { clear. intros d. induction l as [|a l IH]; intros j q H; [destruct j; discriminate|].
        unfold lowest in *. cbn [fold_right]. destruct j as [|j]; cbn in H.
        - inversion H. lia.
        - specialize (IH _ _ H). lia. }
      specialize (Low (length rs) _ _ _ Q). lia. }
    destruct (lowest_spec _ _ Lr) as [At Low]. fold r in At, Low.
    apply Nat.ltb_lt in Lr as Lb. rewrite Lb. apply gaps_nth in At as (x' & y' & X' & Y' & E).
    assert (O : Optimal rs ts r (index_of r (gaps rs ts))).
    { unfold gap in E. destruct (rank rs x' y') as [r'|] eqn:R'; [|lia]. subst r'.
      split; [exact (rank_selects _ _ _ _ _ _ X' Y' R')|]. intros q2 k S.
      destruct (selected_rank _ _ _ _ S) as (x2 & y2 & r2 & X2 & Y2 & R2 & L2).
      assert (N : nth_error (gaps rs ts) k = Some r2).
      { apply gaps_nth. exists x2, y2. unfold gap. now rewrite R2. }
      specialize (Low _ _ N). lia. }
    destruct (optimal_unique _ _ _ _ _ _ B O). congruence.
  - destruct (r <? length rs) eqn:Lb; [|reflexivity]. exfalso. apply Nat.ltb_lt in Lb.
    destruct (lowest_spec _ _ Lb) as [At _]. fold r in At. apply gaps_nth in At as (x & y & X & Y & E).
    unfold gap in E. destruct (rank rs x y) as [r'|] eqn:R; [|lia].
    exact (best_none _ _ _ B _ _ (rank_selects _ _ _ _ _ _ X Y R)).
Qed.

(** B2. encode_short, which keeps the rank of every gap in a list, takes the leftmost lowest and
    repairs the two gaps beside the merge, returns the tokens of the specification, for every table
    and every byte string. *)
Theorem encode_short_correct rs bs : encode_short rs bs = encode rs bs.
Proof.
  unfold encode_short, encode. generalize (initial bs) as ts.
  induction (length bs) as [|n IH]; intros ts; [reflexivity|]. cbn [run_short run].
  rewrite (lowest_best rs ts). destruct (lowest (length rs) (gaps rs ts) <? length rs) eqn:L; [|reflexivity].
  set (r := lowest (length rs) (gaps rs ts)) in *. set (i := index_of r (gaps rs ts)).
  assert (B : best rs 0 ts = Some (r, i)).
  { rewrite (lowest_best rs ts). fold r. now rewrite L. }
  destruct (proj1 (best_optimal _ _ _ _ B)) as (p & _ & P). rewrite (repaired_gaps rs ts i p _ P). apply IH.
Qed.
