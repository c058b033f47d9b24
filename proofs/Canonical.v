(* is_canonical and first_noncanonical: on valid tables they decide encode (decode ts) = ts. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks Cuts Sweep Glue Border.
Import ListNotations.
Local Opaque encode.

Lemma decode_single rs t : decode rs [t] = decode1 rs t.
Proof. unfold decode. cbn [flat_map]. apply app_nil_r. Qed.

Lemma decode_pair rs x y : decode rs [x; y] = decode1 rs x ++ decode1 rs y.
Proof. rewrite decode_cons, decode_single. reflexivity. Qed.

Lemma byte_canonical rs b : Valid rs -> b < 256 -> Canonical rs [b].
Proof.
  intros V B. apply canonical_spec. rewrite decode_single, decode1_byte by exact B.
  apply Stop. apply single_stuck.
Qed.

Section Pair.
Variables (rs : table) (x y : token).
Hypothesis V : Valid rs.
Hypothesis Rx : x < 256 + length rs.
Hypothesis Ry : y < 256 + length rs.
Hypothesis Cx : Canonical rs [x].
Hypothesis Cy : Canonical rs [y].

Lemma pair_both : Both rs x y (decode1 rs x) (decode1 rs y).
Proof.
  apply (both_exists rs x y _ _ _ (le_n _)).
  - rewrite <- decode_single. now apply canonical_spec.
  - rewrite <- decode_single. now apply canonical_spec.
Qed.

Lemma pair_timed : Timed rs (decode1 rs x) (decode1 rs y).
Proof. apply timed_bytes; now apply decode1_range. Qed.

(* an accepted walk: the bytes of x and y become x y, whatever happens afterwards *)
Lemma pair_ok_steps n lim : pair_ok n rs x y lim = true -> Steps rs (decode rs [x; y]) [x; y].
Proof.
  intros P. rewrite decode_pair. exact (walk_accepts rs x y n lim V P _ _ pair_both pair_timed).
Qed.

Lemma steps_below : Steps rs (decode rs [x; y]) [x; y] -> Below rs x y.
Proof.
  intros R. rewrite decode_pair in R.
  destruct (decode1_range rs V x Rx) as [Bx Nx]. destruct (decode1_range rs V y Ry) as [By Ny].
  destruct (both_shape _ _ _ _ _ pair_both) as [(u & z & El) (w & v & Em)].
  assert (D : decode rs (decode1 rs x) = decode rs [x]).
  { rewrite decode_single. now apply decode_bytes. }
  assert (N : NE rs (decode1 rs x ++ decode1 rs y)).
  { apply ne_bytes. apply Forall_app. now split. }
  refine (runs_accepted rs x y V _ _ pair_both pair_timed N D R u z w v El Em _).
  apply below_bytes; [exact V | |].
  - rewrite El in Bx. apply Forall_app in Bx as [_ Bx]. now inversion Bx.
  - rewrite Em in By. now inversion By.
Qed.

(** B7. On a valid table, for two tokens in range that are each canonical: the walk down their trees
    accepts the pair iff the pair is canonical. *)
Theorem compatible_iff : compatible rs x y = true <-> Canonical rs [x; y].
Proof.
  unfold compatible. split.
  - intros P. apply canonical_spec. apply (steps_ranked _ _ [x; y]).
    + exact (pair_ok_steps _ _ P).
    + apply Stop. intros q i (p & N & Q).
      cbn [pair_ok] in P. destruct (joined_below rs x y (length rs)) eqn:J; [discriminate|].
      apply (joined_below_good rs x y _ V) in J.
      destruct i as [|i]; [|destruct Q as [_ Q]; destruct i; discriminate].
      destruct Q as [Q1 Q2]. cbn in Q1, Q2. inversion Q1; inversion Q2; subst.
      specialize (J q). destruct p as [a b]. cbn in J. specialize (J N).
      assert (q < length rs) by (apply nth_error_Some; congruence). lia.
  - intros C. apply canonical_spec in C. apply steps_below; [now apply ranked_steps | lia|].
    intros q N. exfalso. assert (S : Selected rs [x; y] q 0).
    { exists (x, y). split; [exact N | split; reflexivity]. }
    clear - C S. remember [x; y] as t eqn:E. revert S.
    induction C as [ts H|ts r i ts' O R IH]; intros S; [exact (H _ _ S) | auto].
Qed.
End Pair.

(* splitting a run that has a cut, for runs that need not be finished *)
Lemma steps_split rs ts ts' : Valid rs -> Steps rs ts ts' -> NE rs ts ->
  forall l r l' r', ts = l ++ r -> ts' = l' ++ r' -> decode rs l = decode rs l' ->
  Steps rs l l' /\ Steps rs r r'.
Proof.
  intros V. induction 1 as [ts|ts q i ts' O H IH]; intros N l r l' r' E E' D.
  - subst ts. destruct (ne_split _ _ _ _ _ N E' D) as [-> ->]. split; apply Here.
  - subst ts. pose proof (ne_merge _ _ _ _ V N (proj1 O)) as N'.
    destruct (where_selected rs l r q i (proj1 O)) as [[L Sl]|[L|(k & -> & Sr)]].
    + rewrite merge_l in * by exact L.
      destruct (IH N' _ _ _ _ eq_refl E') as [A B].
      { rewrite (decode_merge rs l q i V Sl). exact D. }
      split; [|exact B]. exact (There _ _ q i _ (optimal_l _ _ _ _ _ O L) A).
    + exfalso. subst ts'. exact (no_cross rs l r l' r' q i V N (proj1 O) L H D).
    + rewrite merge_r in *. destruct (IH N' _ _ _ _ eq_refl E' D) as [A B].
      split; [exact A|]. exact (There _ _ q k _ (optimal_r _ _ _ _ _ O) B).
Qed.

(* a run that ends in the one token 256 + r passed through the two tokens of rule r *)
Lemma last_merge rs r p : nth_error rs r = Some p -> forall ts z, Steps rs ts z ->
  z = [256 + r] -> ts = [256 + r] \/ Steps rs ts [fst p; snd p].
Proof.
  intros N ts z H. induction H as [ts|ts q i ts' O H IH]; intros E; [now left|]. right.
  destruct (IH E) as [M|M]; [|exact (There _ _ q i _ O M)].
  destruct (merge_shape _ _ _ _ (proj1 O)) as (u & p' & w & N' & T & _ & M').
  rewrite M' in M. destruct u as [|u0 [|u1 u]]; try discriminate. cbn [app] in *.
  assert (q = r) as -> by (assert (256 + q = 256 + r) by congruence; lia).
  assert (w = []) as -> by congruence. rewrite N in N'. inversion N'; subst. apply Here.
Qed.

(** B7. On a valid table the token of rank r is canonical iff its two tokens are and the walk finds
    no rule below r that would have joined them otherwise. *)
Theorem token_canonical_iff rs r p : Valid rs -> nth_error rs r = Some p ->
  (Canonical rs [256 + r] <->
   Canonical rs [fst p] /\ Canonical rs [snd p] /\
   pair_ok (S (fst p + snd p)) rs (fst p) (snd p) r = true).
Proof.
  intros V N. destruct (proj2 V _ _ N) as [A B].
  assert (Lr : r < length rs) by (apply nth_error_Some; congruence).
  assert (Ra : fst p < 256 + length rs) by lia. assert (Rb : snd p < 256 + length rs) by lia.
  destruct (decode1_range rs V _ Ra) as [Ba Na]. destruct (decode1_range rs V _ Rb) as [Bb Nb].
  assert (D : decode rs [256 + r] = decode1 rs (fst p) ++ decode1 rs (snd p)).
  { rewrite decode_single. exact (decode1_rule rs r p V N). }
  split.
  - intros C. apply canonical_spec in C. apply ranked_steps in C.
    destruct (last_merge rs r p N _ _ C eq_refl) as [E|S].
    + exfalso. rewrite D in E. apply (f_equal (@length nat)) in E. rewrite app_length in E.
      destruct (decode1 rs (fst p)); [contradiction|]. destruct (decode1 rs (snd p)); [contradiction|].
      cbn in E. lia.
    + rewrite D in S.
      assert (NEb : NE rs (decode1 rs (fst p) ++ decode1 rs (snd p))).
      { apply ne_bytes. apply Forall_app. now split. }
      destruct (steps_split rs _ _ V S NEb _ _ [fst p] [snd p] eq_refl eq_refl) as [Sa Sb].
      { rewrite decode_single. now apply decode_bytes. }
      assert (Ca : Canonical rs [fst p]).
      { apply canonical_spec. rewrite decode_single. apply (steps_ranked _ _ _ _ Sa).
        apply Stop. apply single_stuck. }
      assert (Cb : Canonical rs [snd p]).
      { apply canonical_spec. rewrite decode_single. apply (steps_ranked _ _ _ _ Sb).
        apply Stop. apply single_stuck. }
      split; [exact Ca|]. split; [exact Cb|].
      apply (steps_below rs (fst p) (snd p) V Ra Rb Ca Cb); [now rewrite decode_pair | lia|].
      intros q Nq. assert (q = r); [|lia].
      apply (proj1 (NoDup_nth_error rs) (proj1 V)); [apply nth_error_Some; congruence|].
      rewrite Nq, N. now destruct p.
  - intros (Ca & Cb & P). apply canonical_spec. rewrite D, <- decode_pair.
    apply (steps_ranked _ _ [fst p; snd p]).
    + exact (pair_ok_steps rs (fst p) (snd p) V Ra Rb Ca Cb _ _ P).
    + apply (Step _ _ r 0).
      * split; [exists p; split; [exact N | split; reflexivity]|]. intros q i (p' & N' & Q).
        destruct i as [|i]; [|destruct Q as [_ Q]; destruct i; discriminate].
        right. split; [|lia]. destruct Q as [Q1 Q2]. cbn in Q1, Q2.
        apply (proj1 (NoDup_nth_error rs) (proj1 V)); [exact Lr|]. rewrite N, N'.
        destruct p, p'. cbn in *. congruence.
      * cbn. apply Stop. apply single_stuck.
Qed.

Lemma token_ok_fuel_iff rs : Valid rs -> forall n t, t < n -> t < 256 + length rs ->
  (token_ok_fuel n rs t = true <-> Canonical rs [t]).
Proof.
  intros V. induction n as [|n IH]; intros t L R; [lia|]. cbn [token_ok_fuel].
  destruct (t <? 256) eqn:E.
  - apply Nat.ltb_lt in E. split; [intros _; now apply byte_canonical | reflexivity].
  - apply Nat.ltb_ge in E.
    destruct (nth_error rs (t - 256)) as [p|] eqn:N; [|apply nth_error_None in N; lia].
    destruct (proj2 V _ _ N) as [A B].
    pose proof (token_canonical_iff rs (t - 256) p V N) as T.
    replace (256 + (t - 256)) with t in T by lia. rewrite T.
    rewrite !andb_true_iff, (IH (fst p)), (IH (snd p)) by lia. tauto.
Qed.

(** B7. On a valid table, for an id in range, token_ok decides whether the token is canonical. *)
Theorem token_ok_iff rs t : Valid rs -> t < 256 + length rs ->
  (token_ok rs t = true <-> Canonical rs [t]).
Proof. intros V R. apply token_ok_fuel_iff; [exact V | lia | exact R]. Qed.

(** B7. On a valid table, for ids in range: is_canonical, which does not encode, says yes iff
    encoding what the tokens spell gives the same tokens. *)
Theorem is_canonical_iff rs ts : Valid rs -> InRange rs ts ->
  (is_canonical rs ts = true <-> encode rs (decode rs ts) = ts).
Proof.
  intros V R. fold (Canonical rs ts). rewrite (canonical_iff_pairs rs ts V R).
  unfold is_canonical. rewrite andb_true_iff.
  assert (F : forallb (token_ok rs) ts = true <-> Forall (fun t => Canonical rs [t]) ts).
  { rewrite forallb_forall, Forall_forall. unfold InRange in R. rewrite Forall_forall in R.
    split; intros H t I; [apply token_ok_iff | apply token_ok_iff]; auto. }
  rewrite F. clear F. split; intros [F P]; (split; [exact F|]).
  - induction ts as [|a [|b tl] IH]; [exact I | exact I |].
    inversion R as [|? ? Ra R']; subst. inversion R' as [|? ? Rb _]; subst.
    inversion F as [|? ? Ca F']; subst. inversion F' as [|? ? Cb _]; subst.
    change (pairs_ok rs (a :: b :: tl)) with (compatible rs a b && pairs_ok rs (b :: tl)) in P.
    apply andb_prop in P as [P1 P2]. split; [now apply compatible_iff | exact (IH R' F' P2)].
  - induction ts as [|a [|b tl] IH]; [reflexivity | reflexivity |].
    inversion R as [|? ? Ra R']; subst. inversion R' as [|? ? Rb _]; subst.
    inversion F as [|? ? Ca F']; subst. inversion F' as [|? ? Cb _]; subst.
    change (pairs_ok rs (a :: b :: tl)) with (compatible rs a b && pairs_ok rs (b :: tl)).
    destruct P as [P1 P2]. apply andb_true_intro.
    split; [now apply compatible_iff | exact (IH R' F' P2)].
Qed.

(* ---------------------------------------------------- naming the first broken token *)
Fixpoint first_bad_from (rs : table) (prev : option token) (i : nat) (ts : list token)
  : option nat :=
  match ts with
  | [] => None
  | t :: tl =>
      if token_ok rs t && match prev with None => true | Some s => compatible rs s t end
      then first_bad_from rs (Some t) (S i) tl
      else Some i
  end.
Definition first_noncanonical (rs : table) (ts : list token) : option nat :=
  first_bad_from rs None 0 ts.

Lemma pairs_ok_app rs front s t :
  pairs_ok rs ((front ++ [s]) ++ [t]) = pairs_ok rs (front ++ [s]) && compatible rs s t.
Proof.
  induction front as [|a front IH].
  - cbn. now rewrite andb_true_r.
  - destruct front as [|b front].
    + cbn. now rewrite !andb_true_r.
    + change (compatible rs a b && pairs_ok rs (((b :: front) ++ [s]) ++ [t]) =
              compatible rs a b && pairs_ok rs ((b :: front) ++ [s]) && compatible rs s t).
      now rewrite IH, andb_assoc.
Qed.

Lemma first_bad_from_spec rs tl : forall front prev,
  is_canonical rs front = true ->
  match prev with None => front = [] | Some s => exists f, front = f ++ [s] end ->
  match first_bad_from rs prev (length front) tl with
  | None => is_canonical rs (front ++ tl) = true
  | Some i => is_canonical rs (firstn i (front ++ tl)) = true /\
              is_canonical rs (firstn (S i) (front ++ tl)) = false /\ i < length (front ++ tl)
  end.
Proof.
  induction tl as [|t tl IH]; intros front prev C P; cbn [first_bad_from].
  - now rewrite app_nil_r.
  - assert (G : is_canonical rs (front ++ [t]) =
                token_ok rs t && match prev with None => true | Some s => compatible rs s t end).
    { unfold is_canonical in *. apply andb_prop in C as [C1 C2].
      rewrite forallb_app, C1. destruct prev as [s|].
      - destruct P as (f & ->). rewrite pairs_ok_app, C2. cbn. now rewrite andb_true_r.
      - subst front. cbn. now rewrite !andb_true_r. }
    rewrite <- G. destruct (is_canonical rs (front ++ [t])) eqn:E.
    + specialize (IH (front ++ [t]) (Some t) E (ex_intro _ front eq_refl)).
      rewrite app_length, Nat.add_1_r, <- app_assoc in IH. exact IH.
    + split; [|split].
      * rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r. exact C.
      * rewrite firstn_app, firstn_all2 by lia.
        replace (S (length front) - length front) with 1 by lia. exact E.
      * rewrite app_length. cbn. lia.
Qed.

(** B7. On a valid table, for ids in range: first_noncanonical returns none iff the sequence is
    canonical, and otherwise the index i for which the first i tokens are canonical and the first i
    + 1 are not. *)
Theorem first_noncanonical_spec rs ts : Valid rs -> InRange rs ts ->
  match first_noncanonical rs ts with
  | None => Canonical rs ts
  | Some i => Canonical rs (firstn i ts) /\ ~ Canonical rs (firstn (S i) ts) /\ i < length ts
  end.
Proof.
  intros V R. pose proof (first_bad_from_spec rs ts [] None eq_refl eq_refl) as H.
  cbn [length app] in H. unfold first_noncanonical. unfold Canonical.
  assert (Rf : forall i, InRange rs (firstn i ts)).
  { intros i. unfold InRange in *. rewrite <- (firstn_skipn i ts) in R.
    now apply Forall_app in R as [R _]. }
  destruct (first_bad_from rs None 0 ts) as [i|].
  - destruct H as (H1 & H2 & H3). split; [now apply is_canonical_iff|]. split; [|exact H3].
    intros C. apply is_canonical_iff in C; [congruence | exact V | apply Rf].
  - now apply is_canonical_iff.
Qed.

(* the encoder writes ids of the table only *)
Lemma encode_range rs bs : Bytes bs -> InRange rs (encode rs bs).
Proof.
  intros B. assert (H : RankedBpe rs (initial bs) (encode rs bs))
    by (apply encode_iff_spec; reflexivity).
  assert (I : InRange rs (initial bs)).
  { unfold InRange, initial. revert B. apply Forall_impl. intros b L. lia. }
  revert I. induction H as [ts H|ts r i ts' O R IH]; intros I; [exact I|]. apply IH.
  apply (forall_merge _ rs ts r i (proj1 O) I). destruct (proj1 O) as (p & N & _).
  assert (r < length rs) by (apply nth_error_Some; congruence). lia.
Qed.

(** B8. On a valid table, for byte strings a and b that are not empty: encoding them apart gives the
    tokens of a ++ b iff the last token of a and the first of b are compatible. *)
Corollary concat_safe_compatible rs a b u s t v : Valid rs -> Bytes a -> Bytes b ->
  encode rs a = u ++ [s] -> encode rs b = t :: v ->
  (encode rs (a ++ b) = encode rs a ++ encode rs b <-> compatible rs s t = true).
Proof.
  intros V A B Ea Eb.
  pose proof (encode_range rs a A) as Ra. pose proof (encode_range rs b B) as Rb.
  rewrite Ea in Ra. rewrite Eb in Rb.
  pose proof (decode_encode rs a V A) as Da. pose proof (decode_encode rs b V B) as Db.
  rewrite Ea in Da. rewrite Eb in Db.
  assert (Ca : Canonical rs (u ++ [s])) by (unfold Canonical; rewrite Da; exact Ea).
  assert (Cb : Canonical rs (t :: v)) by (unfold Canonical; rewrite Db; exact Eb).
  assert (Rall : InRange rs (u ++ [s] ++ t :: v)).
  { unfold InRange in *. rewrite app_assoc. apply Forall_app. now split. }
  pose proof Ra as Rs. unfold InRange in Rs. apply Forall_app in Rs as [_ Rs].
  inversion Rs as [|? ? Rs1 _]; subst. inversion Rb as [|? ? Rt1 _]; subst.
  assert (Cs : Canonical rs [s]).
  { apply (canonical_slice rs u [s] [] V); rewrite app_nil_r; assumption. }
  assert (Ct : Canonical rs [t]) by exact (canonical_slice rs [] [t] v V Rb Cb).
  rewrite (compatible_iff rs s t V Rs1 Rt1 Cs Ct).
  assert (D : decode rs (u ++ [s] ++ t :: v) = decode rs (u ++ [s]) ++ decode rs (t :: v))
    by (rewrite app_assoc; apply decode_app).
  split.
  - intros E. rewrite Ea, Eb in E. apply (canonical_slice rs u [s; t] v V); [exact Rall|].
    unfold Canonical. change (u ++ [s; t] ++ v) with (u ++ [s] ++ t :: v).
    rewrite D, E. now rewrite <- app_assoc.
  - intros C. rewrite Ea, Eb.
    assert (Cst : Canonical rs ([s] ++ t :: v)).
    { apply (corollary_III rs [s] [t] v V); [|discriminate | exact C | exact Cb].
      unfold InRange in *. now apply Forall_app in Rall as [_ Rall]. }
    assert (Call : Canonical rs (u ++ [s] ++ t :: v)).
    { apply (corollary_III rs u [s] (t :: v) V); [exact Rall | discriminate | exact Ca | exact Cst]. }
    unfold Canonical in Call. rewrite D in Call. rewrite Call. now rewrite <- app_assoc.
Qed.
