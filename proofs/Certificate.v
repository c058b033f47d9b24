(* Derivation certificates: the (rank, byte offset) of every merge.  Two checkers:
   merging.check_linear, which looks only at the merged pair and its two neighbours, and
   merging.check_derivation, which makes every step anew.  The model keeps the nodes that are alive
   (token, byte offset) in a list; the program keeps them in a linked list, which changes the cost and
   not the answer. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks Sweep.
Import ListNotations.

Notation node := (nat * nat)%type (only parsing).     (* token, byte offset *)
Notation key := (nat * nat)%type (only parsing).      (* rank, byte offset *)

Definition key_lt (j k : key) : Prop := fst j < fst k \/ (fst j = fst k /\ snd j < snd k).
Definition key_le (j k : key) : Prop := fst j < fst k \/ (fst j = fst k /\ snd j <= snd k).
Definition key_ltb (j k : key) : bool :=
  (fst j <? fst k) || ((fst j =? fst k) && (snd j <? snd k)).
Definition key_leb (j k : key) : bool :=
  (fst j <? fst k) || ((fst j =? fst k) && (snd j <=? snd k)).

Lemma key_ltb_iff j k : key_ltb j k = true <-> key_lt j k.
Proof.
  unfold key_ltb, key_lt. rewrite orb_true_iff, andb_true_iff, !Nat.ltb_lt, Nat.eqb_eq. tauto.
Qed.
Lemma key_leb_iff j k : key_leb j k = true <-> key_le j k.
Proof.
  unfold key_leb, key_le.
  rewrite orb_true_iff, andb_true_iff, Nat.ltb_lt, Nat.leb_le, Nat.eqb_eq. tauto.
Qed.

(* ------------------------------------------------------------------- the program *)
(* the adjacency x (at offset ox) | y has no rule, or one whose key is not before k *)
Definition late (rs : table) (x ox y : nat) (k : key) : bool :=
  match rank rs x y with None => true | Some q => key_leb k (q, ox) end.

Definition late_left (rs : table) (prev : option node) (a : nat) (k : key) : bool :=
  match prev with None => true | Some (t, ot) => late rs t ot a k end.
Definition late_right (rs : table) (b ob : nat) (tl : list node) (k : key) : bool :=
  match tl with [] => true | (c, _) :: _ => late rs b ob c k end.
Definition is_rank (rs : table) (a b r : nat) : bool :=
  match rank rs a b with Some q => q =? r | None => false end.

(* merge at offset o with the rule of rank r, if that is allowed *)
Fixpoint merge_offset (rs : table) (r o : nat) (prev : option node) (s : list node)
  : option (list node) :=
  match s with
  | [] => None
  | (a, oa) :: tl =>
      if oa =? o then
        match tl with
        | [] => None
        | (b, ob) :: tl' =>
            if is_rank rs a b r && late_left rs prev a (r, o) && late_right rs b ob tl' (r, o)
            then Some ((256 + r, o) :: tl') else None
        end
      else match merge_offset rs r o (Some (a, oa)) tl with
           | None => None
           | Some tl' => Some ((a, oa) :: tl')
           end
  end.

Fixpoint no_rule_left (rs : table) (s : list node) : bool :=
  match s with
  | (a, _) :: tl =>
      match tl with
      | (b, _) :: _ => match rank rs a b with None => no_rule_left rs tl | Some _ => false end
      | [] => true
      end
  | [] => true
  end.

Fixpoint check_from (rs : table) (last : option key) (s : list node) (steps : list key)
  : option (list token) :=
  match steps with
  | [] => if no_rule_left rs s then Some (map fst s) else None
  | (r, o) :: rest =>
      if match last with None => true | Some k => key_ltb k (r, o) end then
        match merge_offset rs r o None s with
        | None => None
        | Some s' => check_from rs (Some (r, o)) s' rest
        end
      else None
  end.

Definition start (bs : list nat) : list node := combine bs (seq 0 (length bs)).
Definition check_linear (rs : table) (bs : list nat) (steps : list key) (ts : list token) : bool :=
  match check_from rs None (start bs) steps with
  | None => false
  | Some ts' => if list_eq_dec Nat.eq_dec ts' ts then true else false
  end.

(* --------------------------------------------------- what a certificate should say *)
Inductive Derives (rs : table) : list node -> list key -> list token -> Prop :=
| DerivesStop : forall s, (forall r i, ~ Selected rs (map fst s) r i) ->
    Derives rs s [] (map fst s)
| DerivesStep : forall u a o b ob w r steps ts,
    nth_error rs r = Some (a, b) ->
    Optimal rs (map fst (u ++ (a, o) :: (b, ob) :: w)) r (length u) ->
    Derives rs (u ++ (256 + r, o) :: w) steps ts ->
    Derives rs (u ++ (a, o) :: (b, ob) :: w) ((r, o) :: steps) ts.

Lemma derives_ranked rs s steps ts : Derives rs s steps ts -> RankedBpe rs (map fst s) ts.
Proof.
  induction 1 as [s H|u a o b ob w r steps ts N O H IH]; [now apply Stop|].
  apply (Step _ _ r (length u)); [exact O|].
  rewrite map_app in *. cbn [map fst] in *.
  rewrite <- (map_length fst u), apply_merge_at. exact IH.
Qed.

(* ------------------------------------------------------------------ offsets ascend *)
Definition Ascending (s : list node) : Prop :=
  forall i j x ox y oy, i < j -> nth_error s i = Some (x, ox) -> nth_error s j = Some (y, oy) ->
  ox < oy.

Lemma ascending_merge u a o b ob w t :
  Ascending (u ++ (a, o) :: (b, ob) :: w) -> Ascending (u ++ (t, o) :: w).
Proof.
  intros H.
  assert (Q : forall i x ox, nth_error (u ++ (t, o) :: w) i = Some (x, ox) ->
    exists i' x', nth_error (u ++ (a, o) :: (b, ob) :: w) i' = Some (x', ox) /\
      ((i <= length u /\ i' = i) \/ (length u < i /\ i' = S i))).
  { intros i x ox E. destruct (lt_eq_lt_dec i (length u)) as [[L|L]|L].
    - exists i, x. rewrite nth_error_app1 in * by lia. split; [exact E | left; lia].
    - exists i, a. rewrite nth_error_app2 in * by lia.
      replace (i - length u) with 0 in * by lia. cbn in *. inversion E; subst.
      split; [reflexivity | left; lia].
    - exists (S i), x. rewrite nth_error_app2 in * by lia.
      replace (S i - length u) with (S (S (i - length u - 1))) by lia.
      replace (i - length u) with (S (i - length u - 1)) in E by lia.
      split; [exact E | right; lia]. }
  intros i j x ox y oy L E1 E2. apply Q in E1 as (i' & x' & E1 & C1).
  apply Q in E2 as (j' & y' & E2 & C2). apply (H i' j' x' ox y' oy); [lia | exact E1 | exact E2].
Qed.

Lemma ascending_start bs : Ascending (start bs).
Proof.
  unfold start. intros i j x ox y oy L E1 E2.
  assert (G : forall (bs : list nat) k i (x ox : nat), nth_error (combine bs (seq k (length bs))) i = Some (x, ox) ->
              ox = k + i).
  { clear. induction bs as [|b bs IH]; intros k i x ox E; [destruct i; discriminate|].
    cbn [length seq combine] in E. destruct i as [|i]; cbn in E.
    - inversion E; subst. lia.
    - apply IH in E. lia. }
  apply G in E1, E2. lia.
Qed.

Lemma start_tokens bs : map fst (start bs) = initial bs.
Proof.
  unfold start, initial. generalize 0 as k.
  induction bs as [|b bs IH]; intros k; [reflexivity|]. cbn. now rewrite IH.
Qed.

(* ------------------------------------------------------------- alive adjacencies *)
(* at position j the nodes x (offset ox) and y are neighbours and the rule of rank q joins them *)
Definition Alive (rs : table) (s : list node) (j : nat) (k : key) : Prop :=
  exists x y oy, nth_error s j = Some (x, snd k) /\ nth_error s (S j) = Some (y, oy) /\
  rank rs x y = Some (fst k).

Lemma selected_alive rs s r j : Selected rs (map fst s) r j ->
  exists k, Alive rs s j k /\ fst k <= r.
Proof.
  intros ([x y] & N & [A B]). cbn [fst snd] in A, B. rewrite nth_error_map in A, B.
  destruct (nth_error s j) as [[x' ox]|] eqn:E1; [|discriminate].
  destruct (nth_error s (S j)) as [[y' oy]|] eqn:E2; [|discriminate].
  cbn in A, B. inversion A; inversion B; subst.
  destruct (rank_least rs x y r N) as (q & Q & L). exists (q, ox). split; [|exact L].
  exists x, y, oy. auto.
Qed.

Lemma alive_selected rs s j k : Alive rs s j k -> Selected rs (map fst s) (fst k) j.
Proof.
  intros (x & y & oy & E1 & E2 & R). exists (x, y). split.
  - apply rank_from_some in R as [_ N]. now rewrite Nat.sub_0_r in N.
  - split; cbn [fst snd]; rewrite nth_error_map; [rewrite E1 | rewrite E2]; reflexivity.
Qed.

Lemma no_rule_left_iff rs s : no_rule_left rs s = true <-> (forall j k, ~ Alive rs s j k).
Proof.
  induction s as [|[a oa] [|[b ob] tl] IH].
  - split; [intros _ j k (x & y & oy & E & _); destruct j; discriminate | reflexivity].
  - split; [|reflexivity]. intros _ j k (x & y & oy & _ & E & _). destruct j; discriminate.
  - change (no_rule_left rs ((a, oa) :: (b, ob) :: tl)) with
      (match rank rs a b with None => no_rule_left rs ((b, ob) :: tl) | Some _ => false end).
    destruct (rank rs a b) as [q|] eqn:R.
    + split; [discriminate|]. intros H. exfalso. apply (H 0 (q, oa)). exists a, b, ob. auto.
    + rewrite IH. split.
      * intros H [|j] k (x & y & oy & E1 & E2 & Q).
        { cbn in E1, E2. inversion E1; inversion E2; subst. congruence. }
        apply (H j k). exists x, y, oy. auto.
      * intros H j k (x & y & oy & E1 & E2 & Q). apply (H (S j) k). exists x, y, oy. auto.
Qed.

Lemma late_iff rs x ox y k :
  late rs x ox y k = true <-> (forall q, rank rs x y = Some q -> key_le k (q, ox)).
Proof.
  unfold late. destruct (rank rs x y) as [q|].
  - rewrite key_leb_iff. split; [intros H q' E; inversion E; subst; exact H | auto].
  - split; [discriminate | reflexivity].
Qed.

Lemma is_rank_iff rs a b r : is_rank rs a b r = true <-> rank rs a b = Some r.
Proof.
  unfold is_rank. destruct (rank rs a b) as [q|]; [|split; discriminate].
  rewrite Nat.eqb_eq. split; [intros ->; reflexivity | intros H; now inversion H].
Qed.

Definition last_node (prev : option node) (u : list node) : option node :=
  fold_left (fun _ n => Some n) u prev.

Lemma merge_offset_some rs r o s : forall prev s', merge_offset rs r o prev s = Some s' ->
  exists u a b ob w, s = u ++ (a, o) :: (b, ob) :: w /\ s' = u ++ (256 + r, o) :: w /\
    rank rs a b = Some r /\ late_left rs (last_node prev u) a (r, o) = true /\
    late_right rs b ob w (r, o) = true.
Proof.
  induction s as [|[a oa] tl IH]; intros prev s' H; [discriminate|]. cbn [merge_offset] in H.
  destruct (oa =? o) eqn:E.
  - apply Nat.eqb_eq in E. subst oa. destruct tl as [|[b ob] w]; [discriminate|].
    destruct (is_rank rs a b r && late_left rs prev a (r, o) && late_right rs b ob w (r, o)) eqn:G;
      [|discriminate]. inversion H; subst. apply andb_prop in G as [G G3].
    apply andb_prop in G as [G1 G2]. apply is_rank_iff in G1.
    exists [], a, b, ob, w. auto.
  - destruct (merge_offset rs r o (Some (a, oa)) tl) as [tl'|] eqn:M; [|discriminate].
    inversion H; subst. destruct (IH _ _ M) as (u & a' & b & ob & w & -> & -> & R & L1 & L2).
    exists ((a, oa) :: u), a', b, ob, w. auto.
Qed.

Lemma merge_offset_complete rs r o a b ob w : forall u prev,
  (forall x ox, In (x, ox) u -> ox <> o) -> rank rs a b = Some r ->
  late_left rs (last_node prev u) a (r, o) = true -> late_right rs b ob w (r, o) = true ->
  merge_offset rs r o prev (u ++ (a, o) :: (b, ob) :: w) = Some (u ++ (256 + r, o) :: w).
Proof.
  induction u as [|[x ox] u IH]; intros prev N R L1 L2.
  - cbn [app merge_offset]. rewrite Nat.eqb_refl. apply is_rank_iff in R.
    cbn [last_node fold_left] in L1. now rewrite R, L1, L2.
  - cbn [app merge_offset]. destruct (ox =? o) eqn:E.
    { apply Nat.eqb_eq in E. exfalso. apply (N x ox); [now left | exact E]. }
    rewrite (IH (Some (x, ox))); auto. intros y oy I. apply (N y oy). now right.
Qed.

Lemma last_node_app prev u n : last_node prev (u ++ [n]) = Some n.
Proof. unfold last_node. now rewrite fold_left_app. Qed.

(* an adjacency of the old state is the merged pair, one of its neighbours, or survives *)
Lemma alive_cases rs u a o b ob w t j k : Alive rs (u ++ (a, o) :: (b, ob) :: w) j k ->
  (j = length u /\ snd k = o /\ rank rs a b = Some (fst k)) \/
  (exists u' n, u = u' ++ [n] /\ j = length u' /\ snd k = snd n /\
     rank rs (fst n) a = Some (fst k)) \/
  (exists c oc w', w = (c, oc) :: w' /\ j = S (length u) /\ snd k = ob /\
     rank rs b c = Some (fst k)) \/
  (exists j', Alive rs (u ++ (t, o) :: w) j' k).
Proof.
  intros (x & y & oy & E1 & E2 & R). destruct (lt_eq_lt_dec j (length u)) as [[L|L]|L].
  - destruct (Nat.eq_dec (S j) (length u)) as [L2|L2].
    + right. left. destruct (@exists_last _ u) as (u' & n & ->).
      { destruct u; [cbn in L; lia | discriminate]. }
      rewrite app_length in L2. cbn in L2. exists u', n. split; [reflexivity|].
      assert (j = length u') by lia. subst j. split; [reflexivity|].
      rewrite <- app_assoc in E1. rewrite nth_error_app2, Nat.sub_diag in E1 by lia.
      rewrite nth_error_app2 in E2 by (rewrite app_length; cbn; lia).
      rewrite app_length in E2. cbn [length] in E2.
      replace (S (length u') - (length u' + 1)) with 0 in E2 by lia. cbn in E1, E2.
      inversion E1; inversion E2; subst. cbn. auto.
    + right. right. right. exists j. exists x, y, oy.
      rewrite nth_error_app1 in E1 by lia. rewrite nth_error_app1 in E2 by lia.
      rewrite !nth_error_app1 by lia. auto.
  - left. subst j. rewrite nth_error_app2, Nat.sub_diag in E1 by lia.
    rewrite nth_error_app2 in E2 by lia. replace (S (length u) - length u) with 1 in E2 by lia.
    cbn in E1, E2. inversion E1; inversion E2; subst. auto.
  - right. right. destruct (Nat.eq_dec j (S (length u))) as [->|N].
    + left. rewrite nth_error_app2 in E1 by lia. rewrite nth_error_app2 in E2 by lia.
      replace (S (length u) - length u) with 1 in E1 by lia.
      replace (S (S (length u)) - length u) with 2 in E2 by lia. cbn in E1, E2.
      destruct w as [|[c oc] w]; [discriminate|]. cbn in E2.
      inversion E1; inversion E2; subst. exists y, oy, w. auto.
    + right. exists (j - 1). exists x, y, oy.
      rewrite nth_error_app2 in E1 by lia. rewrite nth_error_app2 in E2 by lia.
      rewrite nth_error_app2 by lia. rewrite nth_error_app2 by lia.
      replace (j - length u) with (S (S (j - length u - 2))) in E1 by lia.
      replace (S j - length u) with (S (S (S (j - length u - 2)))) in E2 by lia.
      replace (j - 1 - length u) with (S (j - length u - 2)) by lia.
      replace (S (j - 1) - length u) with (S (S (j - length u - 2))) by lia. auto.
Qed.

Definition after (last : option key) (k : key) : Prop :=
  match last with None => True | Some l => key_lt l k end.

Lemma key_lt_le_trans j k l : key_lt j k -> key_le k l -> key_lt j l.
Proof. unfold key_lt, key_le. lia. Qed.

(* ---------------------------------------------------------------------- soundness *)
(** Key idea: the checker never looks for the best merge. If the rest of a certificate is accepted,
    every adjacency that is alive comes after the last accepted key: it must be gone at the end, and
    a pair may only go at a key that is not after its own. *)
Lemma check_from_sound rs steps : forall last s ts, check_from rs last s steps = Some ts ->
  Ascending s -> (forall j k, Alive rs s j k -> after last k) /\ Derives rs s steps ts.
Proof.
  induction steps as [|[r o] steps IH]; intros last s ts H A; cbn [check_from] in H.
  - destruct (no_rule_left rs s) eqn:N; [|discriminate]. inversion H; subst.
    pose proof (proj1 (no_rule_left_iff rs s) N) as N'. split.
    + intros j k K. destruct (N' j k K).
    + apply DerivesStop. intros q j S. destruct (selected_alive rs s q j S) as (k & K & _).
      exact (N' j k K).
  - destruct (match last with None => true | Some k => key_ltb k (r, o) end) eqn:Hl; [|discriminate].
    destruct (merge_offset rs r o None s) as [s'|] eqn:M; [|discriminate].
    destruct (merge_offset_some rs r o s None s' M) as (u & a & b & ob & w & -> & -> & R & L1 & L2).
    destruct (IH _ _ _ H (ascending_merge _ _ _ _ _ _ _ A)) as [K D].
    assert (Low : forall j k, Alive rs (u ++ (a, o) :: (b, ob) :: w) j k -> key_le (r, o) k).
    { intros j k Al.
      destruct (alive_cases rs u a o b ob w (256 + r) j k Al)
        as [(_ & E & Q)|[(u' & n & -> & _ & E & Q)|[(c & oc & w' & -> & _ & E & Q)|(j' & Al')]]].
      - right. cbn [fst snd]. split; [congruence | lia].
      - rewrite last_node_app in L1. destruct n as [t ot]. cbn [late_left fst snd] in *.
        pose proof (proj1 (late_iff _ _ _ _ _) L1 _ Q) as F. destruct k. cbn in *. subst. exact F.
      - cbn [late_right] in L2. pose proof (proj1 (late_iff _ _ _ _ _) L2 _ Q) as F.
        destruct k. cbn in *. subst. exact F.
      - pose proof (K j' k Al') as F. cbn [after] in F. unfold key_lt, key_le in *. lia. }
    split.
    + intros j k Al. destruct last as [l|]; [|exact I]. cbn [after].
      apply key_ltb_iff in Hl. exact (key_lt_le_trans _ _ _ Hl (Low j k Al)).
    + assert (Nr : nth_error rs r = Some (a, b)).
      { apply rank_from_some in R as [_ N]. now rewrite Nat.sub_0_r in N. }
      assert (Eu : nth_error (u ++ (a, o) :: (b, ob) :: w) (length u) = Some (a, o)).
      { now rewrite nth_error_app2, Nat.sub_diag by lia. }
      apply DerivesStep; [exact Nr | split | exact D].
      * change r with (fst (r, o)). apply alive_selected. exists a, b, ob. split; [exact Eu|].
        split; [|exact R]. rewrite nth_error_app2 by lia.
        now replace (S (length u) - length u) with 1 by lia.
      * intros q j S. destruct (selected_alive rs _ q j S) as (k & Al & Lq).
        pose proof (Low j k Al) as F. unfold key_le in F. cbn [fst snd] in F.
        destruct (Nat.eq_dec r q) as [->|N]; [|left; lia]. right. split; [reflexivity|].
        destruct (le_lt_dec (length u) j) as [Lj|Lj]; [exact Lj|]. exfalso.
        destruct Al as (x & y & oy & E1 & _ & _).
        pose proof (A j (length u) x (snd k) a o Lj E1 Eu). lia.
Qed.

(** B11. For every table: if the linear checker accepts a certificate, its steps are the
    specification's, all of them and in order, and its tokens are the end. *)
Theorem check_linear_sound rs bs steps ts : check_linear rs bs steps ts = true ->
  Derives rs (start bs) steps ts /\ BpeSpec rs bs ts.
Proof.
  unfold check_linear. destruct (check_from rs None (start bs) steps) as [ts'|] eqn:C; [|discriminate].
  destruct (list_eq_dec Nat.eq_dec ts' ts) as [->|_]; [|discriminate]. intros _.
  destruct (check_from_sound rs steps None _ _ C (ascending_start bs)) as [_ D].
  split; [exact D|]. pose proof (derives_ranked rs _ _ _ D) as S.
  rewrite start_tokens in S. exact S.
Qed.

(** B11. For every table: tokens with an accepted certificate are the tokens of encode, so a checked
    run needs no trust in the encoder that made it. *)
Corollary check_linear_encode rs bs steps ts : check_linear rs bs steps ts = true ->
  encode rs bs = ts.
Proof. intros H. apply encode_iff_spec. now apply (check_linear_sound rs bs steps). Qed.

(* ------------------------------------------------------------------- completeness *)
Lemma check_from_complete rs s steps ts : Valid rs -> Derives rs s steps ts ->
  forall last, Ascending s -> (forall j k, Alive rs s j k -> after last k) ->
  check_from rs last s steps = Some ts.
Proof.
  intros V. induction 1 as [s H|u a o b ob w r steps ts N O H IH]; intros last A K;
    cbn [check_from].
  - assert (E : no_rule_left rs s = true).
    { apply no_rule_left_iff. intros j k Al. exact (H _ _ (alive_selected _ _ _ _ Al)). }
    now rewrite E.
  - set (s := u ++ (a, o) :: (b, ob) :: w) in *.
    assert (Eu : nth_error s (length u) = Some (a, o)).
    { unfold s. now rewrite nth_error_app2, Nat.sub_diag by lia. }
    assert (Ew : nth_error s (S (length u)) = Some (b, ob)).
    { unfold s. rewrite nth_error_app2 by lia. now replace (S (length u) - length u) with 1 by lia. }
    assert (R : rank rs a b = Some r) by now apply rank_iff.
    assert (Low : forall j k, Alive rs s j k -> key_le (r, o) k).
    { intros j k Al. destruct (proj2 O _ _ (alive_selected _ _ _ _ Al)) as [L|[L1 L2]]; [now left|].
      right. cbn [fst snd]. split; [exact L1|]. destruct Al as (x & y & oy & E1 & _ & _).
      destruct (Nat.eq_dec (length u) j) as [<-|Nj].
      - rewrite Eu in E1. inversion E1. lia.
      - assert (Lt : length u < j) by lia. pose proof (A _ _ _ _ _ _ Lt Eu E1). lia. }
    assert (First : match last with None => true | Some k => key_ltb k (r, o) end = true).
    { destruct last as [l|]; [|reflexivity]. apply key_ltb_iff.
      apply (K (length u) (r, o)). exists a, b, ob. auto. }
    rewrite First. unfold s at 1. rewrite merge_offset_complete.
    + apply IH; [exact (ascending_merge _ _ _ _ _ _ _ A)|]. intros j k Al. cbn [after].
      pose proof (alive_selected _ _ _ _ Al) as S.
      assert (M : map fst (u ++ (256 + r, o) :: w) =
                  apply_merge (length u) (256 + r) (map fst s)).
      { unfold s. rewrite !map_app. cbn [map fst].
        now rewrite <- (map_length fst u), apply_merge_at. }
      rewrite M in S. destruct (key_increases rs _ _ _ V O _ _ S) as [L|[L1 L2]]; [now left|].
      right. cbn [fst snd]. split; [exact L1|]. destruct Al as (x & y & oy & E1 & _ & _).
      assert (Eu' : nth_error (u ++ (256 + r, o) :: w) (length u) = Some (256 + r, o)).
      { now rewrite nth_error_app2, Nat.sub_diag by lia. }
      exact (ascending_merge _ _ _ _ _ _ _ A _ _ _ _ _ _ L2 Eu' E1).
    + intros x ox I Eo. subst ox. apply In_nth_error in I as (i & E).
      assert (Li : i < length u) by (apply nth_error_Some; congruence).
      assert (Es : nth_error s i = Some (x, o)) by (unfold s; rewrite nth_error_app1; assumption).
      pose proof (A _ _ _ _ _ _ Li Es Eu). lia.
    + exact R.
    + assert (U : u = [] \/ exists u' n, u = u' ++ [n]).
      { destruct u as [|n0 u0]; [now left|]. right.
        destruct (@exists_last _ (n0 :: u0)) as (u' & n & E); [discriminate | eauto]. }
      destruct U as [U|(u' & [t ot] & E)]; [rewrite U; reflexivity|].
      rewrite E, last_node_app. cbn [late_left]. apply late_iff. intros q Q.
      apply (Low (length u')). exists t, a, o. split; [|split; [|exact Q]].
      * unfold s. rewrite E, <- app_assoc, nth_error_app2, Nat.sub_diag by lia. reflexivity.
      * rewrite E, app_length, Nat.add_1_r in Eu. exact Eu.
    + destruct w as [|[c oc] w']; [reflexivity|]. cbn [late_right]. apply late_iff. intros q Q.
      apply (Low (S (length u))). exists b, c, oc. split; [exact Ew|]. split; [|exact Q].
      unfold s. rewrite nth_error_app2 by lia.
      now replace (S (S (length u)) - length u) with 2 by lia.
Qed.

(** B11. On a valid table the linear checker accepts a certificate iff its steps are the
    specification's, all of them and in order, and its tokens are the end. *)
Theorem check_linear_iff rs bs steps ts : Valid rs ->
  (check_linear rs bs steps ts = true <-> Derives rs (start bs) steps ts).
Proof.
  intros V. split; [intros H; now apply check_linear_sound|]. intros D. unfold check_linear.
  rewrite (check_from_complete rs _ _ _ V D None (ascending_start bs)) by (intros; exact I).
  destruct (list_eq_dec Nat.eq_dec ts ts); [reflexivity | contradiction].
Qed.

(* the two nodes at which an optimal merge stands *)
Lemma optimal_node rs (s : list node) r i : Optimal rs (map fst s) r i ->
  exists u a o b ob w, s = u ++ (a, o) :: (b, ob) :: w /\ i = length u /\ nth_error rs r = Some (a, b).
Proof.
  intros B. destruct (proj1 B) as ([a b] & N & [E1 E2]).
  cbn [fst snd] in E1, E2. rewrite nth_error_map in E1, E2.
  destruct (nth_error s i) as [[a' o]|] eqn:F1; [|discriminate].
  destruct (nth_error s (S i)) as [[b' ob]|] eqn:F2; [|discriminate].
  cbn in E1, E2. inversion E1; inversion E2; subst a' b'.
  apply nth_error_split in F1 as (u & w0 & -> & Lu). subst i.
  rewrite nth_error_app2 in F2 by lia. replace (S (length u) - length u) with 1 in F2 by lia.
  cbn in F2. destruct w0 as [|n0 w]; [discriminate|]. inversion F2; subst n0.
  now exists u, a, o, b, ob, w.
Qed.

(* every byte string has a certificate, and it certifies exactly what the encoder returns *)
Lemma derives_exists rs : forall n s, length s <= n -> exists steps ts, Derives rs s steps ts.
Proof.
  induction n as [|n IH]; intros s L.
  - destruct s; [|cbn in L; lia]. exists [], []. apply (DerivesStop rs []).
    intros r i (p & _ & [E _]). destruct i; discriminate.
  - destruct (best rs 0 (map fst s)) as [[r i]|] eqn:B.
    + apply best_optimal in B. destruct (optimal_node _ _ _ _ B) as (u & a & o & b & ob & w & -> & -> & N).
      rewrite app_length in L. cbn in L.
      destruct (IH (u ++ (256 + r, o) :: w)) as (steps & ts & D); [rewrite app_length; cbn; lia|].
      exists ((r, o) :: steps), ts. now apply DerivesStep.
    + exists [], (map fst s). apply DerivesStop. exact (best_none _ _ _ B).
Qed.

(** B11. On a valid table every byte string has a certificate that the linear checker accepts for
    the tokens of encode. *)
Theorem certificate_exists rs bs : Valid rs ->
  exists steps, check_linear rs bs steps (encode rs bs) = true.
Proof.
  intros V. destruct (derives_exists rs _ (start bs) (le_n _)) as (steps & ts & D).
  exists steps. apply check_linear_iff; [exact V|].
  pose proof (derives_ranked rs _ _ _ D) as S. rewrite start_tokens in S.
  assert (E : encode rs bs = ts) by (apply encode_iff_spec; exact S). rewrite E. exact D.
Qed.

(* ------------------------------------------------------------ the replaying checker *)
(* merging.check_derivation: make every step anew, with the specification's own choice *)
Definition merge_node (i t : nat) (s : list node) : list node :=
  match nth_error s i with
  | Some (_, o) => firstn i s ++ (t, o) :: skipn (i + 2) s
  | None => s
  end.

Fixpoint replay (rs : table) (s : list node) (steps : list key) : option (list token) :=
  match steps with
  | [] => match best rs 0 (map fst s) with None => Some (map fst s) | Some _ => None end
  | (r', o') :: rest =>
      match best rs 0 (map fst s) with
      | None => None
      | Some (r, i) =>
          match nth_error s i with
          | None => None
          | Some (_, o) => if (r' =? r) && (o' =? o)
                           then replay rs (merge_node i (256 + r) s) rest else None
          end
      end
  end.
Definition check_replay (rs : table) (bs : list nat) (steps : list key) (ts : list token) : bool :=
  match replay rs (start bs) steps with
  | None => false
  | Some ts' => if list_eq_dec Nat.eq_dec ts' ts then true else false
  end.

Lemma merge_node_at u a o n w t : merge_node (length u) t (u ++ (a, o) :: n :: w) = u ++ (t, o) :: w.
Proof.
  unfold merge_node. rewrite nth_error_app2, Nat.sub_diag by lia. cbn [nth_error].
  rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r. f_equal. f_equal.
  rewrite skipn_app, skipn_all2 by lia. replace (length u + 2 - length u) with 2 by lia. reflexivity.
Qed.

Lemma app_inj_pivot_length {A} (u u' : list A) x x' w w' : length u = length u' ->
  u ++ x :: w = u' ++ x' :: w' -> u = u' /\ x = x' /\ w = w'.
Proof.
  revert u'. induction u as [|a u IH]; intros [|a' u'] L E; cbn in L; try discriminate.
  - inversion E. auto.
  - cbn in E. inversion E; subst. destruct (IH u') as (-> & -> & ->); auto.
Qed.

Lemma replay_iff rs steps : forall s ts, replay rs s steps = Some ts <-> Derives rs s steps ts.
Proof.
  induction steps as [|[r' o'] steps IH]; intros s ts; cbn [replay].
  - destruct (best rs 0 (map fst s)) as [[r i]|] eqn:B.
    + split; [discriminate|]. intros D. inversion D; subst. exfalso.
      exact (H _ _ (proj1 (best_optimal _ _ _ _ B))).
    + split.
      * intros H. inversion H; subst. apply DerivesStop. exact (best_none _ _ _ B).
      * intros D. now inversion D.
  - destruct (best rs 0 (map fst s)) as [[r i]|] eqn:B.
    + pose proof (best_optimal _ _ _ _ B) as O.
      destruct (optimal_node _ _ _ _ O) as (u & a & o & b & ob & w & -> & -> & N).
      rewrite nth_error_app2, Nat.sub_diag by lia. cbn [nth_error].
      rewrite merge_node_at. split.
      * destruct ((r' =? r) && (o' =? o)) eqn:E; [|discriminate]. intros H.
        apply andb_prop in E as [A1 A2]. apply Nat.eqb_eq in A1, A2. subst r' o'.
        apply DerivesStep; [exact N | exact O | now apply IH].
      * intros D. inversion D as [|u' a1 o1 b1 ob1 w1 r1 st1 ts1 N1 O1 D1 Es]; subst.
        rewrite Es in O1. destruct (optimal_unique _ _ _ _ _ _ O O1) as [<- L].
        apply app_inj_pivot_length in Es as (-> & Ea & Ew); [|now symmetry].
        inversion Ea; inversion Ew; subst. rewrite !Nat.eqb_refl. cbn [andb]. now apply IH.
    + split; [discriminate|]. intros D.
      inversion D as [|u' a1 o1 b1 ob1 w1 r1 st1 ts1 N1 O1 D1 Es]; subst. exfalso.
      exact (best_none _ _ _ B _ _ (proj1 O1)).
Qed.

(** B11. For every table the replaying checker accepts a derivation certificate iff its steps are
    the specification's, all of them and in order, and its tokens are the end. *)
Theorem check_replay_iff rs bs steps ts :
  check_replay rs bs steps ts = true <-> Derives rs (start bs) steps ts.
Proof.
  unfold check_replay. rewrite <- replay_iff. destruct (replay rs (start bs) steps) as [ts'|].
  - destruct (list_eq_dec Nat.eq_dec ts' ts) as [->|N]; split; intros H; try congruence; discriminate.
  - split; discriminate.
Qed.

Lemma derives_length rs s steps ts : Derives rs s steps ts -> length steps + length ts = length s.
Proof.
  induction 1 as [s H|u a o b ob w r steps ts N O H IH]; [cbn; now rewrite map_length|].
  rewrite app_length in *. cbn [length] in *. lia.
Qed.

Lemma start_length bs : length (start bs) = length bs.
Proof. unfold start. rewrite combine_length, seq_length. lia. Qed.

(** B3. Every derivation of the specification makes as many merges as there are bytes less the
    tokens that are left. *)
Theorem merges_are_bytes_less_tokens rs bs steps ts :
  Derives rs (start bs) steps ts -> length steps + length ts = length bs.
Proof. intros D. rewrite <- (start_length bs). exact (derives_length _ _ _ _ D). Qed.
