(* The encoder for long texts as it ships: merging._sweep, encode_long and derive.  Places wait in a
   dictionary, rank -> places in the order in which they were noted.  The lowest rank is taken with
   all its places; each place is merged if its pair is still there, and skipped if not. *)
From Coq Require Import List Arith Lia Bool PeanoNat Sorted.
From TitoNb Require Import Spec Textbook Ranks Short Sweep Certificate Queue.
Import ListNotations.

(* ------------------------------------------------------------------- the program *)
Notation dict := (list (nat * list nat)) (only parsing).      (* rank -> places *)

Fixpoint waiting_at (d : dict) (q : nat) : list nat :=
  match d with
  | [] => []
  | (k, l) :: d' => if k =? q then l else waiting_at d' q
  end.
Fixpoint note (d : dict) (q place : nat) : dict :=
  match d with
  | [] => [(q, [place])]
  | (k, l) :: d' => if k =? q then (k, l ++ [place]) :: d' else (k, l) :: note d' q place
  end.
Definition note_all (d : dict) (es : list entry) : dict :=
  fold_left (fun d e => note d (fst (fst e)) (snd (fst e))) es d.
Definition keys (d : dict) : list nat := map fst d.
(* the lowest rank that waits, its places, and what goes on waiting *)
Definition take (d : dict) : option (nat * list nat * dict) :=
  match keys d with
  | [] => None
  | k :: ks => let r := fold_right Nat.min k ks in
               Some (r, waiting_at d r, filter (fun b => negb (fst b =? r)) d)
  end.

(* the places of one rank, from first to last; x y is its rule *)
Fixpoint bucket (rs : table) (r x y : nat) (places : list nat) (s : list node) (d : dict)
  : list key * list node * dict :=
  match places with
  | [] => ([], s, d)
  | o :: rest =>
      match try_merge rs r o x y None s with
      | None => bucket rs r x y rest s d
      | Some (s', new) =>
          match bucket rs r x y rest s' (note_all d new) with
          | (steps, s1, d1) => ((r, o) :: steps, s1, d1)
          end
      end
  end.

Fixpoint buckets (n : nat) (rs : table) (s : list node) (d : dict) : list key * list token :=
  match n with
  | 0 => ([], map fst s)
  | S n' =>
      match take d with
      | None => ([], map fst s)
      | Some (r, places, d') =>
          match nth_error rs r with
          | None => ([], map fst s)
          | Some (x, y) =>
              match bucket rs r x y places s d' with
              | (steps, s1, d1) => let (more, ts) := buckets n' rs s1 d1 in (steps ++ more, ts)
              end
          end
      end
  end.

Definition derive (rs : table) (bs : list nat) : list key * list token :=
  buckets (length rs) rs (start bs) (note_all [] (queue_all rs (start bs))).
Definition encode_long (rs : table) (bs : list nat) : list token := snd (derive rs bs).

(* --------------------------------------------------------------- the dictionary *)
Definition noted (q : nat) (es : list entry) : list nat :=
  map (fun e => snd (fst e)) (filter (fun e => fst (fst e) =? q) es).

Lemma waiting_note d q place q' :
  waiting_at (note d q place) q' = waiting_at d q' ++ (if q =? q' then [place] else []).
Proof.
  induction d as [|[k l] d IH]; cbn [note waiting_at].
  - destruct (q =? q'); reflexivity.
  - destruct (k =? q) eqn:E; cbn [waiting_at].
    + apply Nat.eqb_eq in E. subst k. destruct (q =? q'); [reflexivity | now rewrite app_nil_r].
    + destruct (k =? q') eqn:F; [|exact IH]. apply Nat.eqb_eq in F. subst k.
      rewrite Nat.eqb_sym in E. rewrite E. now rewrite app_nil_r.
Qed.

Lemma waiting_note_all es : forall d q,
  waiting_at (note_all d es) q = waiting_at d q ++ noted q es.
Proof.
  induction es as [|[[q oe] p] es IH]; intros d q'.
  - unfold noted. cbn. now rewrite app_nil_r.
  - change (note_all d (((q, oe), p) :: es)) with (note_all (note d q oe) es).
    rewrite IH, waiting_note, <- app_assoc. unfold noted. cbn [filter fst snd].
    destruct (q =? q'); reflexivity.
Qed.

Lemma keys_note d q place k : In k (keys (note d q place)) -> k = q \/ In k (keys d).
Proof.
  induction d as [|[j l] d IH]; cbn [note].
  - intros [H|[]]. left. symmetry. exact H.
  - destruct (j =? q); cbn; intros [H|H]; auto. destruct (IH H); auto.
Qed.

Lemma keys_note_all es : forall d k, In k (keys (note_all d es)) ->
  In k (keys d) \/ exists oe p, In ((k, oe), p) es.
Proof.
  induction es as [|[[q oe] p] es IH]; intros d k H; [now left|].
  change (note_all d (((q, oe), p) :: es)) with (note_all (note d q oe) es) in H.
  destruct (IH _ _ H) as [I|(oe' & p' & I)].
  - apply keys_note in I as [->|I]; [|now left]. right. exists oe, p. now left.
  - right. exists oe', p'. now right.
Qed.

Lemma waiting_key d q i : In i (waiting_at d q) -> In q (keys d).
Proof.
  induction d as [|[k l] d IH]; [intros []|]. cbn [waiting_at]. destruct (k =? q) eqn:E.
  - apply Nat.eqb_eq in E. intros _. now left.
  - intros H. right. now apply IH.
Qed.

Lemma waiting_filter d r q :
  waiting_at (filter (fun b => negb (fst b =? r)) d) q = if q =? r then [] else waiting_at d q.
Proof.
  induction d as [|[k l] d IH]; cbn [filter]; [now destruct (q =? r)|].
  cbn [fst]. destruct (k =? r) eqn:E; cbn [negb waiting_at].
  - apply Nat.eqb_eq in E. subst k. rewrite IH. destruct (q =? r) eqn:F; [reflexivity|].
    rewrite Nat.eqb_sym in F. now rewrite F.
  - destruct (k =? q) eqn:F; [|exact IH]. apply Nat.eqb_eq in F. subst k. now rewrite E.
Qed.

Lemma take_spec d : match take d with
  | None => keys d = []
  | Some (r, places, d') => In r (keys d) /\ (forall q, In q (keys d) -> r <= q) /\
      places = waiting_at d r /\
      (forall q, waiting_at d' q = if q =? r then [] else waiting_at d q) /\
      (forall q, In q (keys d') -> In q (keys d) /\ q <> r)
  end.
Proof.
  unfold take. destruct (keys d) as [|k ks] eqn:K; [reflexivity|].
  assert (M : forall ks, In (fold_right Nat.min k ks) (k :: ks) /\
                         forall q, In q (k :: ks) -> fold_right Nat.min k ks <= q).
  { clear. induction ks as [|a ks [I L]].
    - split; [now left|]. cbn. intros q [<-|[]]. lia.
    - cbn [fold_right]. split.
      + destruct (Nat.min_dec a (fold_right Nat.min k ks)) as [E|E]; rewrite E.
        * right. now left.
        * destruct I as [I|I]; [now left | right; now right].
      + intros q [<-|[<-|H]]; [pose proof (L k (or_introl eq_refl)); lia | lia |].
        pose proof (L q (or_intror H)). lia. }
  destruct (M ks) as [I L]. split; [exact I|]. split; [exact L|]. split; [reflexivity|]. split.
  - intros q. apply waiting_filter.
  - intros q H. unfold keys in H. apply in_map_iff in H as ([k' l] & E & H). cbn in E. subst k'.
    apply filter_In in H as [H N]. cbn in N. apply negb_true_iff, Nat.eqb_neq in N.
    split; [|exact N]. rewrite <- K. unfold keys. apply in_map_iff. exists (q, l). auto.
Qed.

(* -------------------------------------------------------------- ascending lists *)
Definition Sorted (l : list nat) : Prop := StronglySorted le l.

Lemma sorted_app l m : Sorted l -> Sorted m -> (forall a b, In a l -> In b m -> a <= b) ->
  Sorted (l ++ m).
Proof.
  intros L M H. induction L as [|a l L IH F]; [exact M|]. cbn [app]. constructor.
  - apply IH. intros x y I J. apply H; [now right | exact J].
  - apply Forall_app. split; [exact F|]. apply Forall_forall. intros y J. apply H; [now left | exact J].
Qed.

Lemma sorted_noted (es : list entry) q : Sorted (map (fun e => snd (fst e)) es) -> Sorted (noted q es).
Proof.
  unfold noted. induction es as [|e es IH]; intros S; [exact S|]. cbn [map] in S.
  inversion S as [|? ? S' F]; subst. cbn [filter].
  destruct (fst (fst e) =? q); [|now apply IH]. cbn [map]. constructor; [now apply IH|].
  rewrite Forall_forall in *. intros x I. apply F. apply in_map_iff in I as (e' & <- & I).
  apply filter_In in I as [I _]. apply in_map_iff. eauto.
Qed.

Lemma noted_in es q i : In i (noted q es) <-> exists p, In ((q, i), p) es.
Proof.
  unfold noted. rewrite in_map_iff. split.
  - intros ([[q' i'] p] & E & H). apply filter_In in H as [H F]. cbn in *. apply Nat.eqb_eq in F.
    subst. eauto.
  - intros (p & H). exists ((q, i), p). split; [reflexivity|]. apply filter_In.
    split; [exact H | apply Nat.eqb_refl].
Qed.

(* ------------------------------------------------------------------ the invariant *)
(* when the later of the two tokens of a pair is made *)
Definition later (p : rule) : nat := Nat.max (fst p) (snd p).

(* between two ranks: everything below lo is done *)
Record Between (rs : table) (lo : nat) (s : list node) (d : dict) : Prop := {
  b_ascending : Ascending s;
  b_tokens : Forall (fun n : node => fst n < 256 + lo) s;
  b_complete : forall j x ox y q, AlivePair rs s j x ox y q -> In ox (waiting_at d q);
  b_keys : forall q, In q (keys d) -> lo <= q < length rs;
  b_sorted : forall q, Sorted (waiting_at d q);
  b_future : forall q p, nth_error rs q = Some p -> 256 + lo <= later p -> waiting_at d q = [] }.

(* inside the bucket of rank r, with the places that are left *)
Record Within (rs : table) (r : nat) (places : list nat) (s : list node) (d : dict) : Prop := {
  w_ascending : Ascending s;
  w_tokens : Forall (fun n : node => fst n < 256 + S r) s;
  w_complete : forall j x ox y q, AlivePair rs s j x ox y q ->
    (q = r /\ In ox places) \/ (r < q /\ In ox (waiting_at d q));
  w_keys : forall q, In q (keys d) -> S r <= q < length rs;
  w_sorted : forall q, Sorted (waiting_at d q);
  w_places : Sorted places;
  w_future : forall q p, nth_error rs q = Some p -> 256 + S r <= later p -> waiting_at d q = [];
  w_made : (forall q p, nth_error rs q = Some p -> later p = 256 + r -> waiting_at d q = []) \/
    exists o, In (256 + r, o) s /\ (forall o', In o' places -> o <= o') /\
      forall q p, nth_error rs q = Some p -> later p = 256 + r ->
      forall i, In i (waiting_at d q) -> i <= o }.

Lemma noted_pair rs prev t o w q i p : In ((q, i), p) (pushes rs prev t o w) ->
  rank rs (fst p) (snd p) = Some q /\
  ((exists l, prev = Some (l, i) /\ p = (l, t)) \/ (i = o /\ exists c oc w', w = (c, oc) :: w' /\ p = (t, c))).
Proof.
  intros H. unfold pushes, entry_of in H. apply in_app_or in H as [H|H].
  - destruct prev as [[l ol]|]; [|destruct H]. destruct (rank rs l t) as [q'|] eqn:R; [|destruct H].
    destruct H as [H|[]]. inversion H; subst. split; [exact R|]. left. eauto.
  - destruct w as [|[c oc] w]; [destruct H|]. destruct (rank rs t c) as [q'|] eqn:R; [|destruct H].
    destruct H as [H|[]]. inversion H; subst. split; [exact R|]. right. split; [reflexivity|]. eauto.
Qed.

Lemma ascending_at u n w m v : Ascending (u ++ n :: w) -> In m u -> v = snd n -> snd m < v.
Proof.
  intros A I ->. destruct m as [m om], n as [n on]. cbn. apply In_nth_error in I as (i & E).
  assert (L : i < length u) by (apply nth_error_Some; congruence).
  apply (A i (length u) m om n on L).
  - now rewrite nth_error_app1.
  - now rewrite nth_error_app2, Nat.sub_diag by lia.
Qed.

Lemma last_node_split u l o : last_node None u = Some (l, o) -> exists u', u = u' ++ [(l, o)].
Proof.
  intros H. destruct u as [|n0 u0]; [discriminate|].
  destruct (@exists_last _ (n0 :: u0)) as (u' & n & E); [discriminate|]. rewrite E in H.
  rewrite last_node_app in H. inversion H; subst. exists u'. exact E.
Qed.

Lemma rank_nth rs x y q : rank rs x y = Some q -> nth_error rs q = Some (x, y).
Proof. intros R. apply rank_from_some in R as [_ N]. now rewrite Nat.sub_0_r in N. Qed.

(** Key idea: a pair of rank q becomes adjacent when the later of its two tokens is made.  All its
    places are therefore noted while one and the same rank is worked off, from left to right, so
    every bucket ascends, and taking it from its first place is taking the leftmost first. *)
Lemma within_step rs r x y o rest u ob w d : Valid rs -> nth_error rs r = Some (x, y) ->
  let s := u ++ (x, o) :: (y, ob) :: w in
  Within rs r (o :: rest) s d ->
  Within rs r rest (u ++ (256 + r, o) :: w)
    (note_all d (pushes rs (last_node None u) (256 + r) o w)) /\
  Optimal rs (map fst s) r (length u).
Proof.
  intros V N s [A T C K S P F M]. set (new := pushes rs (last_node None u) (256 + r) o w).
  assert (Tu : Forall (fun n : node => fst n < 256 + Datatypes.S r) u /\
               Forall (fun n : node => fst n < 256 + Datatypes.S r) w).
  { unfold s in T. apply Forall_app in T as [T1 T2]. split; [exact T1|].
    inversion T2 as [|? ? _ T3]; subst. now inversion T3. }
  destruct (proj2 V _ _ N) as [Lx Ly]. cbn [fst snd] in Lx, Ly.
  assert (New : forall q i p, In ((q, i), p) new -> r < q /\ q < length rs /\
            nth_error rs q = Some p /\ later p = 256 + r /\ i <= o).
  { intros q i p I. apply noted_pair in I as [R W]. pose proof (rank_bound _ _ _ _ R) as B.
    apply rank_nth in R. replace (fst p, snd p) with p in R by now destruct p.
    assert (Lp : (fst p = 256 + r \/ snd p = 256 + r) /\ later p = 256 + r /\ i <= o).
    { unfold later. destruct W as [(l & W & ->)|(-> & c & oc & w' & -> & ->)]; cbn [fst snd].
      - destruct (last_node_split _ _ _ W) as (u' & ->).
        destruct Tu as [Tu _]. apply Forall_app in Tu as [_ Tu]. inversion Tu; subst. cbn [fst] in *.
        split; [now right|]. split; [lia|].
        assert (i < o); [|lia].
        apply (ascending_at (u' ++ [(l, i)]) (x, o) ((y, ob) :: w) (l, i) o A); [|reflexivity].
        apply in_or_app. right. now left.
      - destruct Tu as [_ Tw]. inversion Tw; subst. cbn [fst] in *. split; [now left|]. lia. }
    destruct Lp as (E & Ep & Ei). split; [exact (reads_later rs r q p V R E)|]. auto. }
  split.
  - constructor.
    + exact (ascending_merge _ _ _ _ _ _ _ A).
    + apply Forall_app. split; [exact (proj1 Tu)|]. constructor; [cbn; lia | exact (proj2 Tu)].
    + intros j a oa b q Al. rewrite waiting_note_all.
      destruct (alive_after rs u x o y ob w (256 + r) j a oa b q A Al) as [I|[Ne (j' & Al')]].
      * right. fold new in I. destruct (New _ _ _ I) as [L _]. split; [exact L|].
        apply in_or_app. right. apply noted_in. eauto.
      * destruct (C _ _ _ _ _ Al') as [[-> I]|[L I]].
        { left. split; [reflexivity|]. destruct I as [I|I]; [congruence | exact I]. }
        { right. split; [exact L|]. apply in_or_app. now left. }
    + intros q I. apply keys_note_all in I as [I|(oe & p & I)]; [now apply K|].
      destruct (New _ _ _ I) as (L & B & _). lia.
    + intros q. rewrite waiting_note_all. apply sorted_app; [apply S | |].
      * apply sorted_noted. unfold new, pushes, entry_of.
        destruct (last_node None u) as [[l ol]|] eqn:W.
        { destruct (last_node_split _ _ _ W) as (u' & ->).
          assert (ol < o).
          { apply (ascending_at (u' ++ [(l, ol)]) (x, o) ((y, ob) :: w) (l, ol) o A); [|reflexivity].
            apply in_or_app. right. now left. }
          destruct (rank rs l (256 + r)); destruct w as [|[c oc] w'];
            try destruct (rank rs (256 + r) c); cbn; repeat constructor; lia. }
        { destruct w as [|[c oc] w']; [constructor|]. destruct (rank rs (256 + r) c); cbn; repeat constructor. }
      * intros i i' I I'. apply noted_in in I' as (p & I').
        destruct (New _ _ _ I') as (_ & _ & Nq & Ep & _).
        destruct M as [M|(o0 & In0 & Le0 & M)]; [rewrite (M q p Nq Ep) in I; destruct I|].
        pose proof (M q p Nq Ep i I) as L0. pose proof (Le0 o (or_introl eq_refl)) as L1.
        apply noted_pair in I' as [_ [(l & W & _)|(-> & _)]]; [|lia].
        destruct (last_node_split _ _ _ W) as (u' & ->). unfold s in In0.
        apply in_app_or in In0 as [In0|In0].
        { apply in_app_or in In0 as [In0|[In0|[]]]; [|inversion In0; lia].
          assert (o0 < i'); [|lia]. unfold s in A. rewrite <- app_assoc in A.
          exact (ascending_at u' (l, i') _ (256 + r, o0) i' A In0 eq_refl). }
        { exfalso. destruct In0 as [In0|In0]; [inversion In0; lia|].
          apply In_nth_error in In0 as (k & Ek).
          pose proof (A (length (u' ++ [(l, i')])) (length (u' ++ [(l, i')]) + Datatypes.S k) x o (256 + r) o0) as Z.
          unfold s in Z. rewrite !nth_error_app2 in Z by lia. rewrite Nat.sub_diag in Z.
          replace (length (u' ++ [(l, i')]) + Datatypes.S k - length (u' ++ [(l, i')])) with (Datatypes.S k) in Z by lia.
          cbn in Z. specialize (Z ltac:(lia) eq_refl Ek). lia. }
    + now inversion P.
    + intros q p Nq Lp. rewrite waiting_note_all, (F q p Nq Lp).
      destruct (noted q new) as [|i l] eqn:E; [reflexivity|]. exfalso.
      assert (I : In i (noted q new)) by (rewrite E; now left). apply noted_in in I as (p' & I).
      destruct (New _ _ _ I) as (_ & _ & Nq' & Ep & _). rewrite Nq in Nq'. inversion Nq'; subst. lia.
    + right. exists o. split; [apply in_or_app; right; now left|]. split.
      * intros o' I. inversion P as [|? ? _ Fo]; subst. rewrite Forall_forall in Fo. now apply Fo.
      * intros q p Nq Ep i I. rewrite waiting_note_all in I. apply in_app_or in I as [I|I].
        { destruct M as [M|(o0 & _ & Le0 & M)]; [rewrite (M q p Nq Ep) in I; destruct I|].
          pose proof (M q p Nq Ep i I). pose proof (Le0 o (or_introl eq_refl)). lia. }
        { apply noted_in in I as (p' & I). now destruct (New _ _ _ I) as (_ & _ & _ & _ & L). }
  - assert (Eu : nth_error s (length u) = Some (x, o)).
    { unfold s. now rewrite nth_error_app2, Nat.sub_diag by lia. }
    split.
    + exists (x, y). split; [exact N|]. split; cbn [fst snd]; rewrite nth_error_map.
      * now rewrite Eu.
      * unfold s. rewrite nth_error_app2 by lia. now replace (Datatypes.S (length u) - length u) with 1 by lia.
    + intros q j Sel. destruct (selected_alive rs s q j Sel) as (k & Al & Lq).
      destruct (alive_pair _ _ _ _ Al) as (a & b & Pa).
      destruct (C _ _ _ _ _ Pa) as [[Eq I]|[L _]]; [|left; lia].
      destruct (Nat.eq_dec r q) as [->|Nq]; [|left; lia]. right. split; [reflexivity|].
      destruct (le_lt_dec (length u) j) as [Lj|Lj]; [exact Lj|]. exfalso.
      destruct Pa as (ob' & E1 & _ & _). pose proof (A j (length u) a (snd k) x o Lj E1 Eu).
      destruct I as [I|I]; [lia|]. inversion P as [|? ? _ Fo]; subst. rewrite Forall_forall in Fo.
      specialize (Fo _ I). lia.
Qed.

Lemma within_stale rs r x y o rest s d : nth_error rs r = Some (x, y) ->
  Within rs r (o :: rest) s d -> try_merge rs r o x y None s = None -> Within rs r rest s d.
Proof.
  intros N [A T C K S P F M] Z. constructor; auto.
  - intros j a oa b q Al. destruct (C _ _ _ _ _ Al) as [[-> [I|I]]|H]; [|left; auto | right; exact H].
    exfalso. subst oa. destruct Al as (ob & E1 & E2 & R). apply rank_nth in R.
    rewrite N in R. inversion R; subst a b.
    apply nth_error_split in E1 as (u & w0 & -> & Lu). subst j. rewrite nth_error_app2 in E2 by lia.
    replace (Datatypes.S (length u) - length u) with 1 in E2 by lia. cbn in E2.
    destruct w0 as [|n0 w]; [discriminate|]. inversion E2; subst n0.
    exact (try_merge_alive rs r o x y ob w u None (ascending_prefix _ _ _ _ A) Z).
  - now inversion P.
  - destruct M as [M|(o0 & I0 & Le0 & M)]; [now left|]. right. exists o0. split; [exact I0|].
    split; [|exact M]. intros o' I. apply Le0. now right.
Qed.

Lemma bucket_derives rs r x y : Valid rs -> nth_error rs r = Some (x, y) ->
  forall places s d, Within rs r places s d ->
  match bucket rs r x y places s d with
  | (steps, s1, d1) => Between rs (S r) s1 d1 /\
      forall more ts, Derives rs s1 more ts -> Derives rs s (steps ++ more) ts
  end.
Proof.
  intros V N. induction places as [|o rest IH]; intros s d W; cbn [bucket].
  - split; [|auto]. destruct W as [A T C K S P F M]. constructor; auto.
    intros j a oa b q Al. destruct (C _ _ _ _ _ Al) as [[_ []]|[_ I]]. exact I.
  - destruct (try_merge rs r o x y None s) as [[s' new]|] eqn:Z.
    + destruct (try_merge_some _ _ _ _ _ _ _ _ _ Z) as (u & ob & w & -> & -> & ->).
      destruct (within_step rs r x y o rest u ob w d V N W) as [W' O]. specialize (IH _ _ W').
      destruct (bucket rs r x y rest (u ++ (256 + r, o) :: w)
        (note_all d (pushes rs (last_node None u) (256 + r) o w))) as [[steps s1] d1].
      destruct IH as [B D]. split; [exact B|]. intros more ts H. cbn [app].
      apply DerivesStep; [exact N | exact O | now apply D].
    + apply IH. exact (within_stale rs r x y o rest s d N W Z).
Qed.

Lemma buckets_derive rs : Valid rs -> forall n lo s d, length rs <= n + lo -> Between rs lo s d ->
  Derives rs s (fst (buckets n rs s d)) (snd (buckets n rs s d)).
Proof.
  intros V.
  assert (Done : forall lo s d, Between rs lo s d -> keys d = [] -> Derives rs s [] (map fst s)).
  { intros lo s d B E. apply DerivesStop. intros q i Sel.
    destruct (selected_alive rs s q i Sel) as (k & Al & _).
    destruct (alive_pair _ _ _ _ Al) as (a & b & Pa).
    pose proof (waiting_key _ _ _ (b_complete _ _ _ _ B _ _ _ _ _ Pa)) as I. rewrite E in I. destruct I. }
  induction n as [|n IH]; intros lo s d L B; cbn [buckets].
  - apply (Done lo s d B). destruct (keys d) as [|q ks] eqn:E; [reflexivity|]. exfalso.
    pose proof (b_keys _ _ _ _ B q) as K. rewrite E in K. specialize (K (or_introl eq_refl)). lia.
  - pose proof (take_spec d) as Z. destruct (take d) as [[[r places] d']|]; [|exact (Done lo s d B Z)].
    destruct Z as (I & Low & -> & Wd & Kd). pose proof (b_keys _ _ _ _ B r I) as Kr.
    destruct (nth_error rs r) as [[x y]|] eqn:N; [|apply nth_error_None in N; lia].
    assert (W : Within rs r (waiting_at d r) s d').
    { destruct B as [A T C K S F]. constructor.
      - exact A.
      - revert T. apply Forall_impl. intros n0 H. lia.
      - intros j a oa b q Al. pose proof (C _ _ _ _ _ Al) as H.
        pose proof (Low q (waiting_key _ _ _ H)) as Lq.
        destruct (Nat.eq_dec q r) as [->|Ne]; [now left|]. right. split; [lia|]. rewrite Wd.
        apply Nat.eqb_neq in Ne. now rewrite Ne.
      - intros q H. destruct (Kd q H) as [H1 H2]. pose proof (Low q H1). pose proof (K q H1). lia.
      - intros q. rewrite Wd. destruct (q =? r); [constructor | apply S].
      - apply S.
      - intros q p Nq Lp. rewrite Wd. destruct (q =? r); [reflexivity|]. apply (F q p Nq). lia.
      - left. intros q p Nq Lp. rewrite Wd. destruct (q =? r); [reflexivity|]. apply (F q p Nq). lia. }
    pose proof (bucket_derives rs r x y V N _ _ _ W) as G.
    destruct (bucket rs r x y (waiting_at d r) s d') as [[steps s1] d1]. destruct G as [B' D].
    assert (H : Derives rs s1 (fst (buckets n rs s1 d1)) (snd (buckets n rs s1 d1))).
    { apply (IH (S r)); [lia | exact B']. }
    destruct (buckets n rs s1 d1) as [more ts]. cbn [fst snd] in *. now apply D.
Qed.

Lemma between_start rs bs : Bytes bs ->
  Between rs 0 (start bs) (note_all [] (queue_all rs (start bs))).
Proof.
  intros B.
  assert (Small : Forall (fun n : node => fst n < 256 + 0) (start bs)).
  { rewrite Forall_forall. intros [t o] I. cbn. pose proof (in_map fst _ _ I) as J.
    rewrite start_tokens in J. unfold Bytes in B. rewrite Forall_forall in B. specialize (B _ J). cbn in B. lia. }
  assert (Pairs : forall s q i p, Forall (fun n : node => fst n < 256 + 0) s ->
            In ((q, i), p) (queue_all rs s) ->
            rank rs (fst p) (snd p) = Some q /\ later p < 256 /\ exists a, In (a, i) s).
  { clear. induction s as [|[a oa] [|[b ob] tl] IH]; intros q i p F I; try destruct I.
    change (queue_all rs ((a, oa) :: (b, ob) :: tl)) with
      (entry_of rs a oa b ++ queue_all rs ((b, ob) :: tl)) in I.
    inversion F as [|? ? Fa F']; subst. inversion F' as [|? ? Fb _]; subst. cbn in Fa, Fb.
    apply in_app_or in I as [I|I].
    - unfold entry_of in I. destruct (rank rs a b) as [r|] eqn:R; [|destruct I].
      destruct I as [I|[]]. inversion I; subst. split; [exact R|]. unfold later. cbn [fst snd].
      split; [lia|]. exists a. now left.
    - destruct (IH q i p F' I) as (R & L & a' & H). split; [exact R|]. split; [exact L|].
      exists a'. now right. }
  constructor.
  - apply ascending_start.
  - exact Small.
  - intros j x ox y q Al. rewrite waiting_note_all. cbn [waiting_at app]. apply noted_in.
    exists (x, y). exact (queue_all_complete rs (start bs) j x ox y q Al).
  - intros q I. apply keys_note_all in I as [[]|(oe & p & I)].
    destruct (Pairs _ _ _ _ Small I) as [R _]. pose proof (rank_bound _ _ _ _ R). lia.
  - intros q. rewrite waiting_note_all. cbn [waiting_at app]. apply sorted_noted.
    pose proof (ascending_start bs) as A. revert A Small. generalize (start bs) as s. intros s A Small.
    induction s as [|[a oa] [|[b ob] tl] IH]; try constructor.
    change (queue_all rs ((a, oa) :: (b, ob) :: tl)) with
      (entry_of rs a oa b ++ queue_all rs ((b, ob) :: tl)). rewrite map_app. apply sorted_app.
    + unfold entry_of. destruct (rank rs a b); repeat constructor.
    + apply IH; [|now inversion Small]. intros i j x ox y oy L E1 E2.
      exact (A (S i) (S j) x ox y oy ltac:(lia) E1 E2).
    + intros i i' I I'. apply in_map_iff in I as ([[q0 i0] p0] & <- & I). cbn.
      unfold entry_of in I. destruct (rank rs a b); [|destruct I]. destruct I as [I|[]]. inversion I; subst.
      apply in_map_iff in I' as ([[q1 i1] p1] & <- & I'). cbn.
      assert (F' : Forall (fun n : node => fst n < 256 + 0) ((b, ob) :: tl)) by now inversion Small.
      destruct (Pairs _ _ _ _ F' I') as (_ & _ & a' & H). apply In_nth_error in H as (k & Ek).
      pose proof (A 0 (S k) a i0 a' i1 ltac:(lia) eq_refl Ek). lia.
  - intros q p Nq Lp. rewrite waiting_note_all. cbn [waiting_at app].
    destruct (noted q (queue_all rs (start bs))) as [|i l] eqn:E; [reflexivity|]. exfalso.
    assert (I : In i (noted q (queue_all rs (start bs)))) by (rewrite E; now left).
    apply noted_in in I as (p' & I). destruct (Pairs _ _ _ _ Small I) as (R & L & _).
    apply rank_nth in R. rewrite Nq in R. inversion R; subst. destruct p'. cbn in *. lia.
Qed.

(** B11. On a valid table the steps that derive returns are those of the specification, all of
    them and in order, and its tokens are the end. *)
Theorem derive_derives rs bs : Valid rs -> Bytes bs ->
  Derives rs (start bs) (fst (derive rs bs)) (snd (derive rs bs)).
Proof.
  intros V B. apply (buckets_derive rs V (length rs) 0); [lia | now apply between_start].
Qed.

(** B2. On a valid table encode_long, which works off one rank at a time from a dictionary of
    places, returns the tokens of the specification. *)
Theorem encode_long_correct rs bs : Valid rs -> Bytes bs -> encode_long rs bs = encode rs bs.
Proof.
  intros V B. symmetry. apply encode_iff_spec.
  pose proof (derives_ranked rs _ _ _ (derive_derives rs bs V B)) as D.
  rewrite start_tokens in D. exact D.
Qed.

(* bpe.encode: one encoder for short texts, the other for longer ones *)
Definition encode_by_length (limit : nat) (rs : table) (bs : list nat) : list token :=
  if length bs <=? limit then encode_short rs bs else encode_long rs bs.

(** B2. On a valid table, for every limit: encode_short up to the limit and encode_long above it, which
    is what bpe.encode does, return the tokens of the specification. *)
Theorem encode_by_length_correct limit rs bs : Valid rs -> Bytes bs ->
  BpeSpec rs bs (encode_by_length limit rs bs).
Proof.
  intros V B. apply encode_iff_spec. unfold encode_by_length.
  destruct (length bs <=? limit); symmetry; [apply encode_short_correct | now apply encode_long_correct].
Qed.
