(* Bytes that stand side by side inside some token (bpe.inner_pairs), and what ships on top of them:
   bpe.first_noncanonical, which judges each distinct token and pair once and looks only at borders
   whose two bytes are such a pair, and bpe.splits_safely. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Ranks Cuts Sweep Glue Border Canonical.
Import ListNotations.
Local Opaque encode decode.

(* ------------------------------------------------------------------- the program *)
(* one entry for each byte, then one for each rule, copied from one of its two tokens *)
Fixpoint grow (side : rule -> token) (l : list nat) (rs : table) : list nat :=
  match rs with
  | [] => l
  | p :: rs' => grow side (l ++ [nth (side p) l 0]) rs'
  end.
Definition first_bytes (rs : table) : list nat := grow fst (seq 0 256) rs.
Definition last_bytes (rs : table) : list nat := grow snd (seq 0 256) rs.
Definition first_byte (rs : table) (t : token) : nat := nth t (first_bytes rs) 0.
Definition last_byte (rs : table) (t : token) : nat := nth t (last_bytes rs) 0.
Definition inner_pairs (rs : table) : list (nat * nat) :=
  map (fun p => (last_byte rs (fst p), first_byte rs (snd p))) rs.

Definition same_pair (p q : nat * nat) : bool := (fst p =? fst q) && (snd p =? snd q).
Definition has (p : nat * nat) (l : list (nat * nat)) : bool := existsb (same_pair p) l.
Definition pair_dec (p q : nat * nat) : {p = q} + {p <> q}.
Proof. decide equality; apply Nat.eq_dec. Defined.
Fixpoint borders (ts : list token) : list (nat * nat) :=
  match ts with
  | a :: tl => match tl with b :: _ => (a, b) :: borders tl | [] => [] end
  | [] => []
  end.

Fixpoint first_marked (unsound : list token) (joined : list (nat * nat)) (prev : option token)
    (i : nat) (ts : list token) : option nat :=
  match ts with
  | [] => None
  | t :: tl =>
      if existsb (Nat.eqb t) unsound || match prev with None => false | Some s => has (s, t) joined end
      then Some i else first_marked unsound joined (Some t) (S i) tl
  end.

Definition first_noncanonical_once (rs : table) (ts : list token) : option nat :=
  let inner := inner_pairs rs in
  let unsound := filter (fun t => negb (token_ok rs t)) (nodup Nat.eq_dec ts) in
  let doubtful := filter (fun p => has (last_byte rs (fst p), first_byte rs (snd p)) inner)
                    (nodup pair_dec (borders ts)) in
  let joined := filter (fun p => negb (compatible rs (fst p) (snd p))) doubtful in
  match unsound, joined with
  | [], [] => None
  | _, _ => first_marked unsound joined None 0 ts
  end.

Definition splits_safely (rs : table) (a b : list nat) : bool :=
  match rev (encode rs a), encode rs b with
  | s :: _, t :: _ => compatible rs s t
  | _, _ => true
  end.

(* ------------------------------------------------------------ first and last bytes *)
Lemma grow_prefix side rs : forall l t, t < length l -> nth t (grow side l rs) 0 = nth t l 0.
Proof.
  induction rs as [|p rs IH]; intros l t H; [reflexivity|].
  cbn [grow]. rewrite IH; [apply app_nth1; exact H | rewrite app_length; lia].
Qed.

Lemma grow_rule side rs : forall l r p, nth_error rs r = Some p -> side p < length l + r ->
  nth (length l + r) (grow side l rs) 0 = nth (side p) (grow side l rs) 0.
Proof.
  induction rs as [|q rs IH]; intros l r p N L; [destruct r; discriminate|].
  destruct r as [|r]; cbn [nth_error] in N; cbn [grow].
  - inversion N; subst. rewrite Nat.add_0_r in *.
    rewrite !grow_prefix by (rewrite app_length; cbn; lia).
    rewrite app_nth2, Nat.sub_diag by lia. now rewrite app_nth1 by lia.
  - set (w := l ++ [nth (side q) l 0]).
    assert (E : length l + S r = length w + r) by (unfold w; rewrite app_length; cbn; lia).
    rewrite E in *. now apply IH.
Qed.

Lemma grow_byte side rs b : b < 256 -> nth b (grow side (seq 0 256) rs) 0 = b.
Proof. intros L. rewrite grow_prefix by (rewrite seq_length; exact L). now rewrite seq_nth. Qed.

Lemma edge_rule side rs r p : nth_error rs r = Some p -> side p < 256 + r ->
  nth (256 + r) (grow side (seq 0 256) rs) 0 = nth (side p) (grow side (seq 0 256) rs) 0.
Proof.
  intros N L. pose proof (grow_rule side rs (seq 0 256) r p N) as G. rewrite seq_length in G. auto.
Qed.

Lemma first_rule rs r p : Valid rs -> nth_error rs r = Some p ->
  first_byte rs (256 + r) = first_byte rs (fst p).
Proof. intros V N. apply (edge_rule fst); [exact N | apply (proj2 V _ _ N)]. Qed.
Lemma last_rule rs r p : Valid rs -> nth_error rs r = Some p ->
  last_byte rs (256 + r) = last_byte rs (snd p).
Proof. intros V N. apply (edge_rule snd); [exact N | apply (proj2 V _ _ N)]. Qed.

Lemma edges_spell rs : Valid rs -> forall t, t < 256 + length rs ->
  exists u v, decode1 rs t = first_byte rs t :: u /\ decode1 rs t = v ++ [last_byte rs t].
Proof.
  intros V t. induction t as [t IH] using (well_founded_induction lt_wf). intros L.
  destruct (le_lt_dec 256 t) as [G|G].
  - destruct (nth_error rs (t - 256)) as [p|] eqn:N; [|apply nth_error_None in N; lia].
    destruct (proj2 V _ _ N) as [A B]. replace t with (256 + (t - 256)) by lia.
    rewrite (first_rule rs _ p V N), (last_rule rs _ p V N), (decode1_rule _ _ _ V N).
    destruct (IH (fst p)) as (u & _ & E & _); [lia | lia |].
    destruct (IH (snd p)) as (_ & v & _ & F); [lia | lia |].
    exists (u ++ decode1 rs (snd p)), (decode1 rs (fst p) ++ v). split.
    + now rewrite E.
    + now rewrite F, app_assoc.
  - rewrite decode1_byte by exact G. unfold first_byte, last_byte, first_bytes, last_bytes.
    rewrite !grow_byte by exact G. exists [], []. split; reflexivity.
Qed.

(** B9. On a valid table the bytes x y are an inner pair iff some token of the table spells them
    side by side. *)
Theorem inner_pairs_iff rs x y : Valid rs ->
  (In (x, y) (inner_pairs rs) <-> exists t, t < 256 + length rs /\ Infix x y (decode1 rs t)).
Proof.
  intros V. unfold inner_pairs. rewrite in_map_iff. split.
  - intros (p & E & I). inversion E; subst. apply In_nth_error in I as (r & N).
    assert (Lr : r < length rs) by (apply nth_error_Some; congruence).
    destruct (proj2 V _ _ N) as [A B]. exists (256 + r). split; [lia|].
    destruct (edges_spell rs V (fst p)) as (_ & v & _ & F); [lia|].
    destruct (edges_spell rs V (snd p)) as (u & _ & G & _); [lia|].
    exists v, u. rewrite (decode1_rule _ _ _ V N), F, G, <- app_assoc. reflexivity.
  - intros (t & L & H). revert t L H.
    induction t as [t IH] using (well_founded_induction lt_wf). intros L (u & v & E).
    destruct (le_lt_dec 256 t) as [G|G].
    + destruct (nth_error rs (t - 256)) as [p|] eqn:N; [|apply nth_error_None in N; lia].
      destruct (proj2 V _ _ N) as [A B]. replace t with (256 + (t - 256)) in E by lia.
      rewrite (decode1_rule _ _ _ V N) in E.
      apply app_eq_app in E as (zs & [[E1 E2] | [E1 E2]]).
      * destruct zs as [|z zs]; [|destruct zs as [|z2 zs]].
        { apply (IH (snd p)); [lia | lia |]. exists [], v. exact (eq_sym E2). }
        { cbn in E2. inversion E2; subst z.
          exists p. split; [|exact (nth_error_In _ _ N)].
          destruct (edges_spell rs V (fst p)) as (_ & v' & _ & F); [lia|].
          destruct (edges_spell rs V (snd p)) as (u' & _ & G' & _); [lia|].
          rewrite E1 in F. apply app_inj_tail in F as [_ F]. rewrite <- H1 in G'. inversion G'.
          now rewrite <- F. }
        { cbn in E2. inversion E2; subst. apply (IH (fst p)); [lia | lia |]. exists u, zs. exact E1. }
      * apply (IH (snd p)); [lia | lia |]. exists zs, v. exact E2.
    + rewrite decode1_byte in E by exact G. destruct u as [|? [|? ?]]; discriminate.
Qed.

Lemma not_inner_safe rs x y : Valid rs -> ~ In (x, y) (inner_pairs rs) -> SafePair rs x y.
Proof.
  intros V N t I. apply N. apply (inner_pairs_iff rs x y V). exists t. split; [|exact I].
  destruct (le_lt_dec (256 + length rs) t) as [G|G]; [|exact G]. exfalso.
  destruct I as (u & v & E). unfold decode1 in E. rewrite nth_overflow in E; [destruct u; discriminate|].
  assert (B : forall rs l, length (build l rs) = length l + length rs).
  { clear. induction rs as [|p rs IH]; intros l; [cbn; lia|]. cbn [build length].
    rewrite IH, app_length. cbn. lia. }
  unfold vocab. rewrite B, base_length. exact G.
Qed.

(** B9. On a valid table a text may be cut between two bytes that are no inner pair: encoding the
    two sides apart gives the tokens of the whole. *)
Theorem cut_outside_inner_pairs rs a x y b : Valid rs -> Bytes (a ++ [x]) -> Bytes (y :: b) ->
  ~ In (x, y) (inner_pairs rs) ->
  encode rs ((a ++ [x]) ++ y :: b) = encode rs (a ++ [x]) ++ encode rs (y :: b).
Proof. intros V A B N. apply safe_pair_concat; auto. now apply not_inner_safe. Qed.

(* ------------------------------------------------- the walk behind such a border *)
(** Key idea: going down a tree along its edge never changes the edge's byte, so the walk meets only
    pairs of tokens with the same two bytes at the border.  A rule for one of them would make these
    bytes an inner pair. *)
Lemma walk_outside_inner_pairs rs : Valid rs -> forall n x y lim, x + y < n ->
  x < 256 + length rs -> y < 256 + length rs ->
  ~ In (last_byte rs x, first_byte rs y) (inner_pairs rs) -> pair_ok n rs x y lim = true.
Proof.
  intros V. induction n as [|n IH]; intros x y lim L X Y N; [lia|]. cbn [pair_ok].
  assert (J : joined_below rs x y lim = false).
  { unfold joined_below. destruct (rank rs x y) as [r|] eqn:R; [|reflexivity]. exfalso. apply N.
    apply rank_iff in R; [|exact V]. unfold inner_pairs. apply in_map_iff. exists (x, y).
    split; [reflexivity | exact (nth_error_In _ _ R)]. }
  rewrite J. destruct ((x <? 256) && (y <? 256)) eqn:B; [reflexivity|].
  apply andb_false_iff in B. rewrite !Nat.ltb_ge in B. destruct (y <? x) eqn:Q.
  - apply Nat.ltb_lt in Q.
    destruct (nth_error rs (x - 256)) as [p|] eqn:P; [|apply nth_error_None in P; lia].
    destruct (proj2 V _ _ P) as [_ Z]. apply IH; [lia | lia | exact Y |].
    replace x with (256 + (x - 256)) in N by lia. now rewrite (last_rule rs _ p V P) in N.
  - apply Nat.ltb_ge in Q.
    destruct (nth_error rs (y - 256)) as [p|] eqn:P; [|apply nth_error_None in P; lia].
    destruct (proj2 V _ _ P) as [Z _]. apply IH; [lia | exact X | lia |].
    replace y with (256 + (y - 256)) in N by lia. now rewrite (first_rule rs _ p V P) in N.
Qed.

(** B9. On a valid table, for any two tokens of it: if the last byte of the first and the first byte
    of the second are no inner pair, the two are compatible. *)
Theorem outside_inner_pairs_compatible rs x y : Valid rs ->
  x < 256 + length rs -> y < 256 + length rs ->
  ~ In (last_byte rs x, first_byte rs y) (inner_pairs rs) -> compatible rs x y = true.
Proof. intros V X Y N. apply walk_outside_inner_pairs; auto. Qed.

(* ------------------------------------------------------- each token and pair once *)
Lemma has_iff p l : has p l = true <-> In p l.
Proof.
  unfold has. rewrite existsb_exists. split.
  - intros (q & I & E). unfold same_pair in E. apply andb_prop in E as [E1 E2].
    apply Nat.eqb_eq in E1, E2. destruct p, q. cbn in *. now subst.
  - intros I. exists p. split; [exact I|]. unfold same_pair. now rewrite !Nat.eqb_refl.
Qed.

Lemma bool_same a b : (a = true <-> b = true) -> a = b.
Proof. destruct a, b; intros [A B]; auto. symmetry. auto. Qed.

Lemma first_marked_is rs unsound joined ts : forall prev i,
  (forall t, In t ts -> existsb (Nat.eqb t) unsound = negb (token_ok rs t)) ->
  (forall s t, In (s, t) (borders (match prev with None => ts | Some s => s :: ts end)) ->
    has (s, t) joined = negb (compatible rs s t)) ->
  first_marked unsound joined prev i ts = first_bad_from rs prev i ts.
Proof.
  induction ts as [|t tl IH]; intros prev i U J; [reflexivity|]. cbn [first_marked first_bad_from].
  rewrite (U t (or_introl eq_refl)).
  assert (E : match prev with None => false | Some s => has (s, t) joined end =
              negb (match prev with None => true | Some s => compatible rs s t end)).
  { destruct prev as [s|]; [|reflexivity]. apply J. now left. }
  rewrite E, <- negb_andb.
  rewrite (IH (Some t) (S i)).
  - destruct (token_ok rs t && match prev with None => true | Some s => compatible rs s t end); reflexivity.
  - intros t' I. apply U. now right.
  - intros s' t' I. apply J. destruct prev; [right|]; exact I.
Qed.

Lemma borders_in ts : forall s t, In (s, t) (borders ts) -> In s ts /\ In t ts.
Proof.
  induction ts as [|a [|b tl] IH]; intros s t I; [destruct I | destruct I |].
  change (borders (a :: b :: tl)) with ((a, b) :: borders (b :: tl)) in I. destruct I as [I|I].
  - inversion I; subst. split; [now left | right; now left].
  - destruct (IH _ _ I). split; now right.
Qed.

(** B7, B9. On a valid table, for ids in range: judging each distinct token and each distinct pair
    once, and only pairs whose border bytes are an inner pair, names the same first index as
    judging every token and every pair. *)
Theorem first_noncanonical_once_correct rs ts : Valid rs -> InRange rs ts ->
  first_noncanonical_once rs ts = first_noncanonical rs ts.
Proof.
  intros V R. unfold first_noncanonical_once, first_noncanonical.
  set (unsound := filter (fun t => negb (token_ok rs t)) (nodup Nat.eq_dec ts)).
  set (joined := filter (fun p => negb (compatible rs (fst p) (snd p))) _).
  assert (G : first_marked unsound joined None 0 ts = first_bad_from rs None 0 ts).
  { unfold InRange in R. rewrite Forall_forall in R. apply first_marked_is.
    - intros t I. apply bool_same. rewrite existsb_exists. unfold unsound. split.
      + intros (t' & H & E). apply Nat.eqb_eq in E. subst t'. now apply filter_In in H as [_ H].
      + intros H. exists t. split; [|apply Nat.eqb_refl]. apply filter_In.
        split; [now apply nodup_In | exact H].
    - intros s t I. apply bool_same. rewrite has_iff. unfold joined. rewrite !filter_In, nodup_In.
      cbn [fst snd]. rewrite has_iff. split; [tauto|]. intros H. split; [|exact H].
      split; [exact I|]. destruct (in_dec pair_dec (last_byte rs s, first_byte rs t) (inner_pairs rs)) as [D|D];
        [exact D|]. exfalso. destruct (borders_in _ _ _ I) as [Is It].
      rewrite (outside_inner_pairs_compatible rs s t V (R _ Is) (R _ It) D) in H. discriminate. }
  rewrite <- G. destruct unsound; destruct joined; try reflexivity.
  clear. assert (N : forall l prev i, first_marked [] [] prev i l = None).
  { induction l as [|t l IH]; intros prev i; [reflexivity|]. cbn. destruct prev; apply IH. }
  now rewrite N.
Qed.

(** B8. On a valid table, for byte strings a and b, splits_safely, which looks only at the last token
    of a and the first of b, says whether encoding a and b apart gives the tokens of a ++ b. *)
Theorem splits_safely_iff rs a b : Valid rs -> Bytes a -> Bytes b ->
  (splits_safely rs a b = true <-> encode rs (a ++ b) = encode rs a ++ encode rs b).
Proof.
  intros V A B. unfold splits_safely.
  assert (Empty : forall c, Bytes c -> encode rs c = [] -> c = []).
  { intros c C E. pose proof (decode_encode rs c V C) as D. rewrite E in D. now symmetry in D. }
  assert (Nil : encode rs [] = []) by reflexivity.
  destruct (encode rs a) as [|a0 ea] eqn:Ea.
  - apply (Empty a A) in Ea. subst a. cbn [rev app]. now split.
  - destruct (@exists_last _ (a0 :: ea)) as (u & s & Es); [discriminate|]. rewrite Es, rev_unit.
    destruct (encode rs b) as [|t v] eqn:Eb.
    + apply (Empty b B) in Eb. subst b. rewrite !app_nil_r, Ea, Es. now split.
    + rewrite <- Es, <- Ea, <- Eb. symmetry. rewrite Es in Ea. now apply (concat_safe_compatible rs a b u s t v).
Qed.
