(* The reference encoder, which runs the specification with the specification's own choice, and the
   decoder.  The encoders that ship are in Short.v and Buckets.v and are proved equal to this one. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec.
Import ListNotations.

(* ---------------------------------------------------------- the encoder *)
(* the leftmost position of a pair *)
Fixpoint find_pair (p : rule) (ts : list token) : option nat :=
  match ts with
  | a :: tl =>
      match tl with
      | b :: _ => if (a =? fst p) && (b =? snd p) then Some 0
                  else option_map S (find_pair p tl)
      | [] => None
      end
  | [] => None
  end.

(* rule after rule: the first one that matches, and where it does so first *)
Fixpoint best (rs : table) (r0 : nat) (ts : list token) : option (nat * nat) :=
  match rs with
  | [] => None
  | p :: rs' => match find_pair p ts with
                | Some i => Some (r0, i)
                | None => best rs' (S r0) ts
                end
  end.

(* fuel bounds the number of merges *)
Fixpoint run (fuel : nat) (rs : table) (ts : list token) : list token :=
  match fuel with
  | 0 => ts
  | S f => match best rs 0 ts with
           | None => ts
           | Some (r, i) => run f rs (apply_merge i (256 + r) ts)
           end
  end.

Definition encode (rs : table) (bs : list nat) : list token :=
  run (length bs) rs (initial bs).

Lemma find_pair_some p ts : forall i, find_pair p ts = Some i ->
  PairAt ts i p /\ forall j, PairAt ts j p -> i <= j.
Proof.
  induction ts as [|a tl IH]; intros i H; [discriminate|].
  simpl in H. destruct tl as [|b tl']; [discriminate|].
  destruct ((a =? fst p) && (b =? snd p)) eqn:E.
  - inversion H; subst. apply andb_prop in E as [E1 E2].
    apply Nat.eqb_eq in E1, E2. subst. split; [split; simpl; congruence | intros; lia].
  - destruct (find_pair p (b :: tl')) as [k|] eqn:F; [|discriminate].
    simpl in H. inversion H; subst. destruct (IH k eq_refl) as [P L].
    split; [exact P|]. intros [|j] Q.
    + destruct Q as [Q1 Q2]. simpl in Q1, Q2. inversion Q1; inversion Q2; subst.
      rewrite !Nat.eqb_refl in E. discriminate.
    + specialize (L j Q). lia.
Qed.

Lemma find_pair_none p ts : find_pair p ts = None -> forall j, ~ PairAt ts j p.
Proof.
  induction ts as [|a tl IH]; intros H j Q.
  - destruct Q as [Q _]. destruct j; discriminate.
  - simpl in H. destruct tl as [|b tl'].
    + destruct Q as [_ Q]. simpl in Q. destruct j; discriminate.
    + destruct ((a =? fst p) && (b =? snd p)) eqn:E; [discriminate|].
      destruct (find_pair p (b :: tl')) eqn:F; [discriminate|].
      destruct j as [|j].
      * destruct Q as [Q1 Q2]. simpl in Q1, Q2. inversion Q1; inversion Q2; subst.
        rewrite !Nat.eqb_refl in E. discriminate.
      * exact (IH eq_refl j Q).
Qed.

Lemma best_some rs ts : forall r0 r i, best rs r0 ts = Some (r, i) ->
  exists k p, r = r0 + k /\ nth_error rs k = Some p /\ PairAt ts i p /\
    (forall j, PairAt ts j p -> i <= j) /\
    (forall k' p', k' < k -> nth_error rs k' = Some p' -> forall j, ~ PairAt ts j p').
Proof.
  induction rs as [|q rs IH]; intros r0 r i H; [discriminate|].
  simpl in H. destruct (find_pair q ts) as [i0|] eqn:F.
  - inversion H; subst. destruct (find_pair_some _ _ _ F) as [P L].
    exists 0, q. repeat split; try apply P; try lia; auto.
  - destruct (IH _ _ _ H) as (k & p & E & N & P & L & M).
    exists (S k), p. split; [lia|]. split; [exact N|]. split; [exact P|].
    split; [exact L|]. intros [|k'] p' Hk Hn j.
    + simpl in Hn. inversion Hn; subst. exact (find_pair_none _ _ F j).
    + apply (M k' p'); [lia | exact Hn].
Qed.

Lemma best_none rs ts : forall r0, best rs r0 ts = None ->
  forall r i, ~ Selected rs ts r i.
Proof.
  induction rs as [|q rs IH]; intros r0 H r i (p & N & P).
  - destruct r; discriminate.
  - simpl in H. destruct (find_pair q ts) eqn:F; [discriminate|].
    destruct r as [|r].
    + simpl in N. inversion N; subst. exact (find_pair_none _ _ F i P).
    + apply (IH _ H r i). exists p. split; assumption.
Qed.

Lemma best_optimal rs ts r i : best rs 0 ts = Some (r, i) -> Optimal rs ts r i.
Proof.
  intros H. destruct (best_some _ _ _ _ _ H) as (k & p & E & N & P & L & M).
  simpl in E. subst k. split; [exists p; split; assumption|].
  intros r' i' (p' & N' & P').
  destruct (lt_eq_lt_dec r r') as [[A|A]|A]; [left; exact A| |].
  - right. subst r'. split; [reflexivity|]. rewrite N in N'. inversion N'; subst. auto.
  - exfalso. exact (M _ _ A N' _ P').
Qed.

Lemma pairat_split ts i p : PairAt ts i p ->
  ts = firstn i ts ++ fst p :: snd p :: skipn (i + 2) ts.
Proof.
  revert ts. induction i as [|i IH]; intros ts [H1 H2].
  - destruct ts as [|a [|b tl]]; simpl in *; try discriminate.
    inversion H1; inversion H2; subst. reflexivity.
  - destruct ts as [|a tl]; [discriminate|]. simpl. f_equal.
    apply IH. split; assumption.
Qed.

Lemma merge_length ts i p t : PairAt ts i p ->
  S (length (apply_merge i t ts)) = length ts.
Proof.
  intros H. pose proof (f_equal (@length nat) (pairat_split _ _ _ H)) as E.
  rewrite app_length in E. cbn [length] in E.
  unfold apply_merge. rewrite app_length. cbn [length].
  rewrite E at 1. lia.
Qed.

Lemma run_spec rs : forall fuel ts, length ts <= fuel -> RankedBpe rs ts (run fuel rs ts).
Proof.
  induction fuel as [|f IH]; intros ts L.
  - destruct ts; [|simpl in L; lia]. simpl. apply Stop.
    intros r i (p & _ & [H _]). destruct i; discriminate.
  - cbn [run]. destruct (best rs 0 ts) as [[r i]|] eqn:B.
    + pose proof (best_optimal _ _ _ _ B) as O. apply (Step _ _ r i); [exact O|].
      apply IH. destruct O as [(p & _ & P) _].
      pose proof (merge_length _ _ _ (256 + r) P). lia.
    + apply Stop. exact (best_none _ _ _ B).
Qed.

(** B2. For every table, every byte string and every token sequence: encode returns these tokens iff
    the specification relates the bytes to them. *)
Theorem encode_iff_spec rs bs ts : encode rs bs = ts <-> BpeSpec rs bs ts.
Proof.
  split.
  - intros <-. apply run_spec. unfold initial. lia.
  - intros H. apply (spec_deterministic rs bs); [|exact H].
    apply run_spec. unfold initial. lia.
Qed.

(** B3. For every table and every byte string, exactly one token sequence satisfies the
    specification. *)
Corollary spec_exists_unique rs bs : exists! ts, BpeSpec rs bs ts.
Proof.
  exists (encode rs bs). split; [apply encode_iff_spec; reflexivity|].
  intros ts H. apply encode_iff_spec. exact H.
Qed.

(* ---------------------------------------------------------- the decoder *)
Lemma build_prefix rs : forall v t, t < length v -> nth t (build v rs) [] = nth t v [].
Proof.
  induction rs as [|p rs IH]; intros v t H; [reflexivity|].
  simpl. rewrite IH; [apply app_nth1; exact H | rewrite app_length; lia].
Qed.

Lemma build_rule rs : forall v r p, nth_error rs r = Some p ->
  fst p < length v + r -> snd p < length v + r ->
  nth (length v + r) (build v rs) [] = nth (fst p) (build v rs) [] ++ nth (snd p) (build v rs) [].
Proof.
  induction rs as [|q rs IH]; intros v r p N A B; [destruct r; discriminate|].
  destruct r as [|r]; simpl in N.
  - inversion N; subst. simpl. rewrite Nat.add_0_r in *.
    rewrite !build_prefix by (rewrite app_length; simpl; lia).
    rewrite app_nth2, Nat.sub_diag by lia. simpl.
    rewrite !app_nth1 by lia. reflexivity.
  - simpl. set (w := v ++ [nth (fst q) v [] ++ nth (snd q) v []]).
    assert (E : length v + S r = length w + r) by (unfold w; rewrite app_length; simpl; lia).
    rewrite E in *. apply IH; assumption.
Qed.

Lemma base_length : length base = 256.
Proof. unfold base. rewrite map_length, seq_length. reflexivity. Qed.

Lemma decode1_byte rs b : b < 256 -> decode1 rs b = [b].
Proof.
  intros H. unfold decode1, vocab.
  rewrite build_prefix by (rewrite base_length; exact H).
  unfold base. transitivity (nth b (map (fun b => [b]) (seq 0 256)) ((fun b => [b]) 0)).
  - apply nth_indep. rewrite map_length, seq_length. exact H.
  - rewrite (map_nth (fun b => [b])). rewrite seq_nth by exact H. reflexivity.
Qed.

Lemma decode1_rule rs r p : Valid rs -> nth_error rs r = Some p ->
  decode1 rs (256 + r) = decode1 rs (fst p) ++ decode1 rs (snd p).
Proof.
  intros [_ V] N. destruct (V _ _ N) as [A B]. unfold decode1, vocab.
  rewrite <- base_length in *. apply build_rule; assumption.
Qed.

(** B6. For every table and all token sequences s and t, decoding s ++ t is decoding s and then t. *)
Theorem decode_app rs a b : decode rs (a ++ b) = decode rs a ++ decode rs b.
Proof. unfold decode. apply flat_map_app. Qed.

Lemma decode_merge rs ts r i : Valid rs -> Selected rs ts r i ->
  decode rs (apply_merge i (256 + r) ts) = decode rs ts.
Proof.
  intros V (p & N & P). pose proof (f_equal (decode rs) (pairat_split _ _ _ P)) as E.
  rewrite E. unfold apply_merge. rewrite !decode_app. f_equal.
  change (decode rs ((256 + r) :: skipn (i + 2) ts)) with
    (decode1 rs (256 + r) ++ decode rs (skipn (i + 2) ts)).
  change (decode rs (fst p :: snd p :: skipn (i + 2) ts)) with
    (decode1 rs (fst p) ++ decode1 rs (snd p) ++ decode rs (skipn (i + 2) ts)).
  rewrite (decode1_rule _ _ _ V N), app_assoc. reflexivity.
Qed.

Lemma decode_bytes rs bs : Bytes bs -> decode rs bs = bs.
Proof.
  induction 1 as [|b bs H _ IH]; [reflexivity|].
  change (decode rs (b :: bs)) with (decode1 rs b ++ decode rs bs).
  rewrite IH, decode1_byte by exact H. reflexivity.
Qed.

Lemma ranked_decode rs ts ts' : Valid rs -> RankedBpe rs ts ts' -> decode rs ts' = decode rs ts.
Proof.
  intros V. induction 1 as [|ts r i ts' [S _] _ IH]; [reflexivity|].
  rewrite IH. apply decode_merge; assumption.
Qed.

(** B4. On a valid table, for every byte string, UTF-8 or not, the empty one included: decoding what
    was encoded gives the bytes back. *)
Theorem decode_encode rs bs : Valid rs -> Bytes bs -> decode rs (encode rs bs) = bs.
Proof.
  intros V B. rewrite (ranked_decode rs (initial bs) _ V).
  - apply decode_bytes. exact B.
  - apply run_spec. unfold initial. lia.
Qed.

(** B5. On a valid table, for every byte string: encoding, decoding and encoding again gives the
    tokens of the first time. *)
Theorem encode_decode_encode rs bs : Valid rs -> Bytes bs ->
  encode rs (decode rs (encode rs bs)) = encode rs bs.
Proof. intros V B. now rewrite decode_encode. Qed.
