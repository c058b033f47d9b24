(* An encoder with a priority queue of pairs in which stale entries stay and are skipped.  It does not
   ship; it is the usual one elsewhere, it needs no valid table, and Buckets.v shares its single merge.
   The queue is abstract: any pop that returns a least entry will do. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks Sweep Certificate.
Import ListNotations.

Notation entry := (nat * nat * (nat * nat))%type (only parsing).  (* (rank, offset), pair *)

Definition entry_of (rs : table) (x ox y : nat) : list entry :=
  match rank rs x y with Some q => [((q, ox), (x, y))] | None => [] end.

(* the queue at the start: every adjacent pair that has a rule *)
Fixpoint queue_all (rs : table) (s : list node) : list entry :=
  match s with
  | (a, oa) :: tl => match tl with
                     | (b, _) :: _ => entry_of rs a oa b ++ queue_all rs tl
                     | [] => []
                     end
  | [] => []
  end.

(* the new pairs on both sides of the token t made at offset o *)
Definition pushes (rs : table) (prev : option node) (t o : nat) (w : list node) : list entry :=
  match prev with Some (l, ol) => entry_of rs l ol t | None => [] end ++
  match w with (c, _) :: _ => entry_of rs t o c | [] => [] end.

(* merge the pair x y at offset o if it is still there; None means the entry is stale *)
Fixpoint try_merge (rs : table) (r o x y : nat) (prev : option node) (s : list node)
  : option (list node * list entry) :=
  match s with
  | [] => None
  | (a, oa) :: tl =>
      if oa =? o then
        match tl with
        | [] => None
        | (b, _) :: w =>
            if (a =? x) && (b =? y)
            then Some ((256 + r, o) :: w, pushes rs prev (256 + r) o w) else None
        end
      else match try_merge rs r o x y (Some (a, oa)) tl with
           | None => None
           | Some (tl', ps) => Some ((a, oa) :: tl', ps)
           end
  end.

Lemma try_merge_some rs r o x y s : forall prev s' ps,
  try_merge rs r o x y prev s = Some (s', ps) ->
  exists u ob w, s = u ++ (x, o) :: (y, ob) :: w /\ s' = u ++ (256 + r, o) :: w /\
    ps = pushes rs (last_node prev u) (256 + r) o w.
Proof.
  induction s as [|[a oa] tl IH]; intros prev s' ps H; [discriminate|]. cbn [try_merge] in H.
  destruct (oa =? o) eqn:E.
  - apply Nat.eqb_eq in E. subst oa. destruct tl as [|[b ob] w]; [discriminate|].
    destruct ((a =? x) && (b =? y)) eqn:G; [|discriminate]. inversion H; subst.
    apply andb_prop in G as [G1 G2]. apply Nat.eqb_eq in G1, G2. subst a b.
    exists [], ob, w. auto.
  - destruct (try_merge rs r o x y (Some (a, oa)) tl) as [[tl' qs]|] eqn:M; [|discriminate].
    inversion H; subst. destruct (IH _ _ _ M) as (u & ob & w & -> & -> & ->).
    exists ((a, oa) :: u), ob, w. auto.
Qed.

Lemma try_merge_alive rs r o x y ob w : forall u prev, (forall z oz, In (z, oz) u -> oz <> o) ->
  try_merge rs r o x y prev (u ++ (x, o) :: (y, ob) :: w) <> None.
Proof.
  induction u as [|[z oz] u IH]; intros prev N H.
  - cbn [app try_merge] in H. rewrite !Nat.eqb_refl in H. discriminate.
  - cbn [app try_merge] in H. destruct (oz =? o) eqn:E.
    { apply Nat.eqb_eq in E. apply (N z oz); [now left | exact E]. }
    destruct (try_merge rs r o x y (Some (z, oz)) (u ++ (x, o) :: (y, ob) :: w)) as [[? ?]|] eqn:M;
      [discriminate|]. apply (IH (Some (z, oz))); [|exact M].
    intros v ov I. apply (N v ov). now right.
Qed.

(* the pair x (at offset ox) y is adjacent at position j, and the rule of rank q joins it *)
Definition AlivePair (rs : table) (s : list node) (j x ox y q : nat) : Prop :=
  exists oy, nth_error s j = Some (x, ox) /\ nth_error s (S j) = Some (y, oy) /\
  rank rs x y = Some q.

Lemma ascending_prefix u a o w : Ascending (u ++ (a, o) :: w) ->
  forall z oz, In (z, oz) u -> oz <> o.
Proof.
  intros A z oz I E. subst oz. apply In_nth_error in I as (i & E).
  assert (L : i < length u) by (apply nth_error_Some; congruence).
  assert (E1 : nth_error (u ++ (a, o) :: w) i = Some (z, o)) by (rewrite nth_error_app1; assumption).
  assert (E2 : nth_error (u ++ (a, o) :: w) (length u) = Some (a, o)).
  { now rewrite nth_error_app2, Nat.sub_diag by lia. }
  pose proof (A _ _ _ _ _ _ L E1 E2). lia.
Qed.

(* after a merge an alive pair is one of the two pushed ones, or it was alive before elsewhere *)
Lemma alive_after rs u x o y ob w t j a oa b q : Ascending (u ++ (x, o) :: (y, ob) :: w) ->
  AlivePair rs (u ++ (t, o) :: w) j a oa b q ->
  In ((q, oa), (a, b)) (pushes rs (last_node None u) t o w) \/
  (oa <> o /\ exists j', AlivePair rs (u ++ (x, o) :: (y, ob) :: w) j' a oa b q).
Proof.
  intros A (oy & E1 & E2 & R). unfold pushes. destruct (lt_eq_lt_dec j (length u)) as [[L|L]|L].
  - destruct (Nat.eq_dec (S j) (length u)) as [L2|L2].
    + left. destruct (@exists_last _ u) as (u' & n & ->).
      { destruct u; [cbn in L; lia | discriminate]. }
      rewrite app_length in L2. cbn in L2. assert (j = length u') by lia. subst j.
      rewrite last_node_app. rewrite <- app_assoc in E1.
      rewrite nth_error_app2, Nat.sub_diag in E1 by lia.
      rewrite nth_error_app2 in E2 by (rewrite app_length; cbn; lia).
      rewrite app_length in E2. cbn [length] in E2.
      replace (S (length u') - (length u' + 1)) with 0 in E2 by lia. cbn in E1, E2.
      inversion E1; inversion E2; subst. apply in_or_app. left. unfold entry_of. rewrite R.
      now left.
    + right. rewrite nth_error_app1 in E1 by lia. rewrite nth_error_app1 in E2 by lia. split.
      * apply (ascending_prefix u x o ((y, ob) :: w) A a oa). exact (nth_error_In _ _ E1).
      * exists j, oy. rewrite !nth_error_app1 by lia. auto.
  - left. subst j. rewrite nth_error_app2, Nat.sub_diag in E1 by lia.
    rewrite nth_error_app2 in E2 by lia. replace (S (length u) - length u) with 1 in E2 by lia.
    cbn in E1, E2. destruct w as [|[c oc] w]; [discriminate|]. cbn in E2.
    inversion E1; inversion E2; subst. apply in_or_app. right. unfold entry_of. rewrite R. now left.
  - right. assert (K : AlivePair rs (u ++ (x, o) :: (y, ob) :: w) (S j) a oa b q).
    { exists oy. rewrite nth_error_app2 in E1 by lia. rewrite nth_error_app2 in E2 by lia.
      rewrite !nth_error_app2 by lia.
      replace (j - length u) with (S (j - length u - 1)) in E1 by lia.
      replace (S j - length u) with (S (S (j - length u - 1))) in E2 by lia.
      replace (S j - length u) with (S (S (j - length u - 1))) by lia.
      replace (S (S j) - length u) with (S (S (S (j - length u - 1)))) by lia. auto. }
    split; [|eauto]. intros E. subst oa. destruct K as (oy' & K1 & _ & _).
    assert (Eu : nth_error (u ++ (x, o) :: (y, ob) :: w) (length u) = Some (x, o)).
    { now rewrite nth_error_app2, Nat.sub_diag by lia. }
    assert (Lt : length u < S j) by lia.
    pose proof (A _ _ _ _ _ _ Lt Eu K1). lia.
Qed.

Lemma queue_all_complete rs s : forall j x ox y q, AlivePair rs s j x ox y q ->
  In ((q, ox), (x, y)) (queue_all rs s).
Proof.
  induction s as [|[a oa] [|[b ob] tl] IH]; intros j x ox y q (oy & E1 & E2 & R).
  - destruct j; discriminate.
  - destruct j; discriminate.
  - change (queue_all rs ((a, oa) :: (b, ob) :: tl)) with
      (entry_of rs a oa b ++ queue_all rs ((b, ob) :: tl)). apply in_or_app. destruct j as [|j].
    + left. cbn in E1, E2. inversion E1; inversion E2; subst. unfold entry_of. rewrite R. now left.
    + right. apply (IH j x ox y q). exists oy. auto.
Qed.

Definition Truthful (rs : table) (h : list entry) : Prop :=
  forall q ox x y, In ((q, ox), (x, y)) h -> rank rs x y = Some q.

Lemma entry_of_truthful rs x ox y : Truthful rs (entry_of rs x ox y).
Proof.
  intros q o a b I. unfold entry_of in I. destruct (rank rs x y) as [r|] eqn:R; [|destruct I].
  destruct I as [I|[]]. inversion I; subst. exact R.
Qed.

Lemma queue_all_truthful rs s : Truthful rs (queue_all rs s).
Proof.
  induction s as [|[a oa] [|[b ob] tl] IH]; try (intros q ox x y []).
  change (queue_all rs ((a, oa) :: (b, ob) :: tl)) with
    (entry_of rs a oa b ++ queue_all rs ((b, ob) :: tl)).
  intros q ox x y I. apply in_app_or in I as [I|I].
  - exact (entry_of_truthful _ _ _ _ _ _ _ _ I).
  - exact (IH _ _ _ _ I).
Qed.

Lemma pushes_truthful rs prev t o w : Truthful rs (pushes rs prev t o w).
Proof.
  intros q ox x y I. unfold pushes in I. apply in_app_or in I as [I|I].
  - destruct prev as [[l ol]|]; [|destruct I]. exact (entry_of_truthful _ _ _ _ _ _ _ _ I).
  - destruct w as [|[c oc] w]; [destruct I|]. exact (entry_of_truthful _ _ _ _ _ _ _ _ I).
Qed.

Lemma entry_of_length rs x ox y : length (entry_of rs x ox y) <= 1.
Proof. unfold entry_of. destruct (rank rs x y); cbn; lia. Qed.

Lemma pushes_length rs prev t o w : length (pushes rs prev t o w) <= 2.
Proof.
  unfold pushes. rewrite app_length.
  destruct w as [|[c oc] w]; destruct prev as [[l ol]|]; cbn [length];
    repeat match goal with |- context [entry_of ?a ?b ?c ?d] =>
      pose proof (entry_of_length a b c d); generalize dependent (entry_of a b c d); intros end; lia.
Qed.

Lemma queue_all_length rs s : length (queue_all rs s) <= length s.
Proof.
  induction s as [|[a oa] [|[b ob] tl] IH]; [cbn; lia | cbn; lia|].
  change (queue_all rs ((a, oa) :: (b, ob) :: tl)) with
    (entry_of rs a oa b ++ queue_all rs ((b, ob) :: tl)).
  rewrite app_length. pose proof (entry_of_length rs a oa b). cbn [length] in *. lia.
Qed.

(* ------------------------------------------------------------------------ the loop *)
Section Queue.
Variable pop : list entry -> option (entry * list entry).
Hypothesis pop_none : forall h, pop h = None -> h = [].
Hypothesis pop_some : forall h e h', pop h = Some (e, h') ->
  length h = S (length h') /\ (forall f, In f h <-> f = e \/ In f h') /\
  (forall f, In f h -> key_le (fst e) (fst f)).

(* returns the certificate and the tokens *)
Fixpoint loop (n : nat) (rs : table) (s : list node) (h : list entry)
  : list key * list token :=
  match n with
  | 0 => ([], map fst s)
  | S n' =>
      match pop h with
      | None => ([], map fst s)
      | Some (((r, o), (x, y)), h') =>
          match try_merge rs r o x y None s with
          | None => loop n' rs s h'
          | Some (s', ps) => let (steps, ts) := loop n' rs s' (ps ++ h') in ((r, o) :: steps, ts)
          end
      end
  end.

Definition heap_derive (rs : table) (bs : list nat) : list key * list token :=
  loop (3 * length bs) rs (start bs) (queue_all rs (start bs)).
Definition encode_heap (rs : table) (bs : list nat) : list token := snd (heap_derive rs bs).

Definition Complete (rs : table) (s : list node) (h : list entry) : Prop :=
  forall j x ox y q, AlivePair rs s j x ox y q -> In ((q, ox), (x, y)) h.

Lemma alive_pair rs s j k : Alive rs s j k ->
  exists x y, AlivePair rs s j x (snd k) y (fst k).
Proof. intros (x & y & oy & E1 & E2 & R). exists x, y, oy. auto. Qed.

Lemma complete_empty rs s : Complete rs s [] -> forall r i, ~ Selected rs (map fst s) r i.
Proof.
  intros C r i S. destruct (selected_alive rs s r i S) as (k & Al & _).
  destruct (alive_pair _ _ _ _ Al) as (x & y & P). exact (C _ _ _ _ _ P).
Qed.

(** Key idea: the queue holds every pair that is alive, and perhaps others. A least entry that is
    alive is therefore the optimal merge; one that is not alive can be dropped. *)
Lemma loop_derives rs : forall n s h, 2 * length s + length h <= n -> Ascending s ->
  Complete rs s h -> Truthful rs h -> Derives rs s (fst (loop n rs s h)) (snd (loop n rs s h)).
Proof.
  induction n as [|n IH]; intros s h L A C T.
  - destruct h; [|cbn in L; lia]. cbn. apply DerivesStop. exact (complete_empty rs s C).
  - cbn [loop]. destruct (pop h) as [[[[r o] [x y]] h']|] eqn:P.
    + destruct (pop_some _ _ _ P) as (Lh & Mem & Min).
      assert (T' : Truthful rs h').
      { intros q ox a b I. apply (T q ox a b). apply Mem. now right. }
      destruct (try_merge rs r o x y None s) as [[s' ps]|] eqn:M.
      * destruct (try_merge_some _ _ _ _ _ _ _ _ _ M) as (u & ob & w & -> & -> & ->).
        set (ps := pushes rs (last_node None u) (256 + r) o w) in *.
        assert (D : Derives rs (u ++ (256 + r, o) :: w)
                      (fst (loop n rs (u ++ (256 + r, o) :: w) (ps ++ h')))
                      (snd (loop n rs (u ++ (256 + r, o) :: w) (ps ++ h')))).
        { apply IH.
          - pose proof (pushes_length rs (last_node None u) (256 + r) o w) as Lp. fold ps in Lp.
            rewrite !app_length in *. cbn [length] in *. lia.
          - exact (ascending_merge _ _ _ _ _ _ _ A).
          - intros j a oa b q Al. apply in_or_app.
            destruct (alive_after rs u x o y ob w (256 + r) j a oa b q A Al) as [I|[N (j' & Al')]].
            + left. exact I.
            + right. pose proof (C _ _ _ _ _ Al') as I. apply Mem in I as [I|I]; [|exact I].
              exfalso. apply N. congruence.
          - intros q ox a b I. apply in_app_or in I as [I|I].
            + exact (pushes_truthful _ _ _ _ _ _ _ _ _ I).
            + exact (T' _ _ _ _ I). }
        destruct (loop n rs (u ++ (256 + r, o) :: w) (ps ++ h')) as [steps ts].
        cbn [fst snd] in *.
        assert (R : rank rs x y = Some r) by (apply (T r o x y); apply Mem; now left).
        assert (Eu : nth_error (u ++ (x, o) :: (y, ob) :: w) (length u) = Some (x, o)).
        { now rewrite nth_error_app2, Nat.sub_diag by lia. }
        apply DerivesStep; [|split|exact D].
        { apply rank_from_some in R as [_ N]. now rewrite Nat.sub_0_r in N. }
        { change r with (fst (r, o)). apply alive_selected. exists x, y, ob.
          split; [exact Eu|]. split; [|exact R]. rewrite nth_error_app2 by lia.
          now replace (S (length u) - length u) with 1 by lia. }
        { intros q j S. destruct (selected_alive rs _ q j S) as (k & Al & Lq).
          destruct (alive_pair _ _ _ _ Al) as (a & b & Pa).
          pose proof (Min _ (C _ _ _ _ _ Pa)) as F. unfold key_le in F. cbn [fst snd] in F.
          destruct (Nat.eq_dec r q) as [->|N]; [|left; lia]. right. split; [reflexivity|].
          destruct (le_lt_dec (length u) j) as [Lj|Lj]; [exact Lj|]. exfalso.
          destruct Pa as (ob' & E1 & _ & _).
          pose proof (A j (length u) a (snd k) x o Lj E1 Eu). lia. }
      * apply IH; [lia | exact A | | exact T'].
        intros j a oa b q Al. pose proof (C _ _ _ _ _ Al) as I.
        apply Mem in I as [I|I]; [|exact I]. exfalso. inversion I; subst.
        destruct Al as (ob & E1 & E2 & _). apply nth_error_split in E1 as (u & w0 & -> & Lu).
        subst j. rewrite nth_error_app2 in E2 by lia.
        replace (S (length u) - length u) with 1 in E2 by lia. cbn in E2.
        destruct w0 as [|n0 w]; [discriminate|]. inversion E2; subst n0.
        exact (try_merge_alive rs r o x y ob w u None (ascending_prefix _ _ _ _ A) M).
    + apply pop_none in P. subst h. cbn. apply DerivesStop. exact (complete_empty rs s C).
Qed.

Lemma heap_derives rs bs :
  Derives rs (start bs) (fst (heap_derive rs bs)) (encode_heap rs bs).
Proof.
  apply loop_derives.
  - pose proof (queue_all_length rs (start bs)). rewrite start_length in *. lia.
  - apply ascending_start.
  - exact (queue_all_complete rs (start bs)).
  - apply queue_all_truthful.
Qed.

(** B2. For every table, valid or not, and every queue that pops a least entry: the encoder with a
    queue of pairs, in which stale entries stay and are skipped, returns the tokens of encode. *)
Theorem encode_heap_correct rs bs : encode_heap rs bs = encode rs bs.
Proof.
  symmetry. apply encode_iff_spec. pose proof (derives_ranked rs _ _ _ (heap_derives rs bs)) as S.
  rewrite start_tokens in S. exact S.
Qed.

(** B11. On a valid table the steps of the encoder with a queue are accepted by the linear checker. *)
Theorem heap_certificate_accepted rs bs : Valid rs ->
  check_linear rs bs (fst (heap_derive rs bs)) (encode_heap rs bs) = true.
Proof. intros V. apply check_linear_iff; [exact V | apply heap_derives]. Qed.
End Queue.

(* ----------------------------------------- such a queue exists: take the least of a list *)
Fixpoint pop_least (h : list entry) : option (entry * list entry) :=
  match h with
  | [] => None
  | e :: h1 => match pop_least h1 with
               | None => Some (e, [])
               | Some (f, h2) => if key_leb (fst e) (fst f) then Some (e, h1)
                                 else Some (f, e :: h2)
               end
  end.

Lemma pop_least_none h : pop_least h = None -> h = [].
Proof.
  destruct h as [|e h]; [reflexivity|]. cbn [pop_least].
  destruct (pop_least h) as [[f h2]|]; [destruct (key_leb (fst e) (fst f))|]; discriminate.
Qed.

Lemma pop_least_some h : forall e h', pop_least h = Some (e, h') ->
  length h = S (length h') /\ (forall f, In f h <-> f = e \/ In f h') /\
  (forall f, In f h -> key_le (fst e) (fst f)).
Proof.
  assert (Refl : forall k : key, key_le k k) by (intros k; right; split; [reflexivity | lia]).
  assert (Total : forall j k, key_leb j k = false -> key_le k j).
  { intros j k H. destruct (key_leb k j) eqn:E; [now apply key_leb_iff|]. exfalso.
    assert (~ key_le j k) by (intros Q; apply key_leb_iff in Q; congruence).
    assert (~ key_le k j) by (intros Q; apply key_leb_iff in Q; congruence).
    unfold key_le in *. lia. }
  assert (Trans : forall i j k, key_le i j -> key_le j k -> key_le i k)
    by (unfold key_le; intros; lia).
  induction h as [|a h IH]; intros e h' H; [discriminate|]. cbn [pop_least] in H.
  destruct (pop_least h) as [[f h2]|] eqn:P.
  - destruct (IH _ _ eq_refl) as (L & M & Q). destruct (key_leb (fst a) (fst f)) eqn:K.
    + inversion H; subst. apply key_leb_iff in K. split; [reflexivity|]. split.
      * intros g. cbn [In]. split; intros [G|G]; auto.
      * intros g [<-|G]; [apply Refl|]. exact (Trans _ _ _ K (Q _ G)).
    + inversion H; subst. apply Total in K. split; [cbn; lia|]. split.
      * intros g. cbn [In]. rewrite M. split; intros G; intuition.
      * intros g [<-|G]; [exact K | exact (Q _ G)].
  - apply pop_least_none in P. subst h. inversion H; subst. split; [reflexivity|]. split.
    + intros g. cbn [In]. split; intros [G|G]; auto.
    + intros g [<-|[]]. apply Refl.
Qed.

(** B2. Such a queue exists: with the one that takes the least of a list, the encoder returns the
    tokens of encode, for every table. *)
Corollary encode_heap_least rs bs : encode_heap pop_least rs bs = encode rs bs.
Proof. apply encode_heap_correct; [exact pop_least_none | exact pop_least_some]. Qed.
