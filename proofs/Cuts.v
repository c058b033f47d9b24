(* Where a text may be cut.  All statements are for valid tables. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook.
Import ListNotations.

(* no token spells nothing *)
Definition NE (rs : list (nat*nat)) (ts : list nat) := Forall (fun t => decode1 rs t <> []) ts.

Lemma ne_bytes rs bs : Bytes bs -> NE rs bs.
Proof.
  unfold NE, Bytes. induction 1 as [|b bs H _ IH]; constructor; [|exact IH].
  rewrite decode1_byte by exact H. discriminate.
Qed.

Lemma decode_cons rs t ts : decode rs (t :: ts) = decode1 rs t ++ decode rs ts.
Proof. reflexivity. Qed.

Lemma ne_decode_nil rs ts : NE rs ts -> decode rs ts = [] -> ts = [].
Proof.
  intros N D. destruct ts as [|t ts]; [reflexivity|]. inversion N; subst.
  rewrite decode_cons in D. apply app_eq_nil in D as [D _]. contradiction.
Qed.

Lemma ne_merge rs ts r i : Valid rs -> NE rs ts -> Selected rs ts r i ->
  NE rs (apply_merge i (256 + r) ts).
Proof.
  intros V N (p & Np & P). unfold NE in *.
  rewrite (pairat_split _ _ _ P) in N. apply Forall_app in N as [N1 N2].
  inversion N2 as [|? ? A N3]; subst. inversion N3 as [|? ? B N4]; subst.
  unfold apply_merge. apply Forall_app. split; [exact N1|]. constructor; [|exact N4].
  rewrite (decode1_rule _ _ _ V Np). intros E. apply app_eq_nil in E as [E _]. contradiction.
Qed.

(** Key idea: borders only disappear. A place between tokens of the result was between tokens all
    the time. *)
Lemma cut_back rs ts ts' : Valid rs -> RankedBpe rs ts ts' ->
  forall l' r', ts' = l' ++ r' ->
  exists l r, ts = l ++ r /\ decode rs l = decode rs l' /\ decode rs r = decode rs r'.
Proof.
  intros V. induction 1 as [ts H | ts r0 i ts' [S O] R IH]; intros l' r' E.
  - exists l', r'. auto.
  - destruct (IH _ _ E) as (l & r & E1 & D1 & D2). destruct S as (p & Np & P).
    pose proof (pairat_split _ _ _ P) as X. unfold apply_merge in E1.
    set (u := firstn i ts) in *. set (w := skipn (i + 2) ts) in *. clearbody u w.
    clear O R IH E P. subst ts.
    (* where does l end inside u ++ t :: w ? *)
    destruct (le_lt_dec (length l) (length u)) as [L|L].
    + exists l, (skipn (length l) u ++ fst p :: snd p :: w).
      assert (U : u = l ++ skipn (length l) u).
      { rewrite <- (firstn_skipn (length l) u) at 1. f_equal.
        apply (f_equal (firstn (length l))) in E1.
        rewrite firstn_app in E1. replace (length l - length u) with 0 in E1 by lia.
        rewrite firstn_O, app_nil_r in E1. rewrite E1, firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r.
        reflexivity. }
      split; [rewrite app_assoc, <- U; reflexivity|]. split; [exact D1|].
      rewrite <- D2. rewrite U, <- app_assoc in E1. apply app_inv_head in E1. rewrite <- E1.
      rewrite !decode_app, !decode_cons, (decode1_rule _ _ _ V Np), <- app_assoc. reflexivity.
    + set (k := length l - length u - 1).
      exists (u ++ fst p :: snd p :: firstn k w), (skipn k w).
      assert (Lf : l = u ++ (256 + r0) :: firstn k w).
      { apply (f_equal (firstn (length l))) in E1. rewrite firstn_app, firstn_all2 in E1 by lia.
        replace (length l - length u) with (Datatypes.S k) in E1 by (unfold k; lia).
        cbn [firstn] in E1. rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r in E1.
        symmetry. exact E1. }
      assert (Rt : r = skipn k w).
      { rewrite Lf, <- app_assoc in E1. apply app_inv_head in E1. cbn [app] in E1.
        assert (E2 : w = firstn k w ++ r) by congruence.
        rewrite <- (firstn_skipn k w) in E2 at 1.
        apply app_inv_head in E2. symmetry. exact E2. }
      split; [rewrite <- app_assoc; cbn [app]; rewrite firstn_skipn; reflexivity|].
      split; [|rewrite <- Rt; exact D2].
      rewrite <- D1, Lf, !decode_app, !decode_cons, (decode1_rule _ _ _ V Np), <- app_assoc. reflexivity.
Qed.

Lemma pairat_l l r i p : PairAt l i p -> PairAt (l ++ r) i p.
Proof.
  intros [A B]. split; rewrite nth_error_app1; auto; apply nth_error_Some; congruence.
Qed.
Lemma pairat_l_inv l r i p : S i < length l -> PairAt (l ++ r) i p -> PairAt l i p.
Proof. intros L [A B]. split; [rewrite nth_error_app1 in A | rewrite nth_error_app1 in B]; auto; lia. Qed.
Lemma pairat_r l r i p : PairAt r i p -> PairAt (l ++ r) (length l + i) p.
Proof.
  intros [A B]. split; rewrite nth_error_app2 by lia.
  - now replace (length l + i - length l) with i by lia.
  - now replace (S (length l + i) - length l) with (S i) by lia.
Qed.
Lemma pairat_r_inv l r i p : PairAt (l ++ r) (length l + i) p -> PairAt r i p.
Proof.
  intros [A B]. rewrite nth_error_app2 in A, B by lia.
  replace (length l + i - length l) with i in A by lia.
  replace (S (length l + i) - length l) with (S i) in B by lia. split; assumption.
Qed.

Lemma merge_l l r i t : S i < length l -> apply_merge i t (l ++ r) = apply_merge i t l ++ r.
Proof.
  intros L. unfold apply_merge. rewrite firstn_app, skipn_app.
  replace (i - length l) with 0 by lia. replace (i + 2 - length l) with 0 by lia.
  rewrite firstn_O, app_nil_r. cbn [skipn]. now rewrite <- app_assoc.
Qed.
Lemma merge_r l r i t : apply_merge (length l + i) t (l ++ r) = l ++ apply_merge i t r.
Proof.
  unfold apply_merge. rewrite firstn_app, skipn_app.
  rewrite firstn_all2 by lia. rewrite skipn_all2 by lia.
  replace (length l + i - length l) with i by lia.
  replace (length l + i + 2 - length l) with (i + 2) by lia.
  now rewrite <- app_assoc.
Qed.

(** B8. On a valid table: where the result of a run has a token border, the run is two runs, one on
    each side. *)
Theorem split_at_boundary rs ts ts' : Valid rs -> RankedBpe rs ts ts' -> NE rs ts ->
  forall l r l' r', ts = l ++ r -> ts' = l' ++ r' -> decode rs l = decode rs l' ->
  RankedBpe rs l l' /\ RankedBpe rs r r'.
Proof.
  intros V. induction 1 as [ts H | ts r0 i ts' O R IH]; intros N l r l' r' E E' D.
  - assert (l = l' /\ r = r') as [-> ->].
    { subst ts. assert (X : l = l').
      { assert (G : forall a b c d, NE rs (a ++ b) -> a ++ b = c ++ d -> decode rs a = decode rs c -> a = c).
        { clear. induction a as [|x a IHa]; intros b c d N E D.
          - destruct c as [|y c]; [reflexivity|]. cbn [app] in *. subst b. inversion N; subst.
            rewrite decode_cons in D. symmetry in D. apply app_eq_nil in D as [D _]. contradiction.
          - destruct c as [|y c].
            + inversion N; subst. rewrite decode_cons in D. apply app_eq_nil in D as [D _]. contradiction.
            + cbn [app] in E. inversion E; subst. inversion N; subst. f_equal.
              rewrite !decode_cons in D. apply app_inv_head in D. eapply IHa; eauto. }
        eapply G; eauto. }
      subst. apply app_inv_head in E'. auto. }
    subst ts. split; apply Stop; intros q j (p & Np & P).
    + apply (H q j). exists p. split; [exact Np | apply pairat_l; exact P].
    + apply (H q (length l' + j)). exists p. split; [exact Np | apply pairat_r; exact P].
  - destruct O as [S O]. pose proof (ne_merge _ _ _ _ V N S) as N'.
    pose proof S as (p & Np & P). subst ts.
    destruct (lt_eq_lt_dec (Datatypes.S i) (length l)) as [[L|L]|L].
    + (* inside l *)
      rewrite merge_l in * by exact L. pose proof (pairat_l_inv _ _ _ _ L P) as Pl.
      destruct (IH N' _ _ _ _ eq_refl E') as [A B].
      { rewrite (decode_merge rs l r0 i V); [exact D | exists p; auto]. }
      split; [|exact B]. apply (Step _ _ r0 i); [|exact A]. split; [exists p; auto|].
      intros q j (p' & Np' & P'). apply O. exists p'. split; [exact Np' | apply pairat_l; exact P'].
    + (* across the cut: impossible *)
      exfalso. destruct (cut_back rs _ _ V R _ _ E') as (l1 & r1 & E1 & D1 & _).
      pose proof (pairat_split _ _ _ P) as X. unfold apply_merge in *.
      set (u := firstn i (l ++ r)) in *. set (w := skipn (i + 2) (l ++ r)) in *.
      assert (Lu : length u = i) by (unfold u; rewrite firstn_length, app_length; lia).
      assert (El : l = u ++ [fst p]).
      { apply (f_equal (firstn (length l))) in X.
        rewrite firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r in X.
        rewrite firstn_app, firstn_all2 in X by lia.
        replace (length l - length u) with 1 in X by lia. exact X. }
      clearbody u w.
      assert (DL : length (decode rs l1) = length (decode rs u) + length (decode1 rs (fst p))).
      { rewrite D1, <- D, El, decode_app, app_length. cbn [decode flat_map]. rewrite app_nil_r. reflexivity. }
      unfold NE in N. rewrite X in N. apply Forall_app in N as [_ N].
      inversion N as [|? ? NA N2]; subst. inversion N2 as [|? ? NB _]; subst.
      assert (LA : length (decode1 rs (fst p)) <> 0) by (intros Z; apply length_zero_iff_nil in Z; contradiction).
      assert (LB : length (decode1 rs (snd p)) <> 0) by (intros Z; apply length_zero_iff_nil in Z; contradiction).
      destruct (le_lt_dec (length l1) (length u)) as [Q|Q].
      * assert (U : u = l1 ++ skipn (length l1) u).
        { rewrite <- (firstn_skipn (length l1) u) at 1. f_equal.
          apply (f_equal (firstn (length l1))) in E1.
          rewrite firstn_app in E1. replace (length l1 - length u) with 0 in E1 by lia.
          rewrite firstn_O, app_nil_r in E1. rewrite E1, firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r.
          reflexivity. }
        rewrite U, decode_app, app_length in DL. lia.
      * apply (f_equal (firstn (length l1))) in E1.
        rewrite (firstn_app (length l1) l1 r1), firstn_all, Nat.sub_diag, firstn_O, app_nil_r in E1.
        rewrite firstn_app, firstn_all2 in E1 by lia.
        destruct (length l1 - length u) as [|k] eqn:K; [lia|]. cbn [firstn] in E1.
        rewrite <- E1, decode_app, decode_cons, (decode1_rule _ _ _ V Np), !app_length in DL. lia.
    + (* inside r *)
      destruct (Nat.le_exists_sub (length l) i) as (j & Ej & _); [lia|].
      rewrite Nat.add_comm in Ej. subst i. rewrite merge_r in *.
      pose proof (pairat_r_inv _ _ _ _ P) as Pr.
      destruct (IH N' _ _ _ _ eq_refl E' D) as [A B].
      split; [exact A|]. apply (Step _ _ r0 j); [|exact B]. split; [exists p; auto|].
      intros q k (p' & Np' & P'). destruct (O q (length l + k)) as [Z|[Z1 Z2]].
      * exists p'. split; [exact Np' | apply pairat_r; exact P'].
      * left; exact Z.
      * right. split; [exact Z1 | lia].
Qed.

(** B8. On a valid table, for byte strings a and b: encoding them apart gives the tokens of a ++ b
    iff a ends at a token border of encode (a ++ b). *)
Theorem concat_safe_iff rs a b : Valid rs -> Bytes a -> Bytes b ->
  (encode rs (a ++ b) = encode rs a ++ encode rs b <->
   exists l r, encode rs (a ++ b) = l ++ r /\ decode rs l = a).
Proof.
  intros V A B. split.
  - intros E. exists (encode rs a), (encode rs b). split; [exact E | apply decode_encode; assumption].
  - intros (l & r & E & D).
    assert (Bab : Bytes (a ++ b)) by (apply Forall_app; split; assumption).
    pose proof (proj1 (encode_iff_spec rs (a ++ b) _) eq_refl) as S.
    destruct (split_at_boundary rs _ _ V S (ne_bytes rs _ Bab) a b l r eq_refl E) as [S1 S2].
    { rewrite D. apply decode_bytes. exact A. }
    apply encode_iff_spec in S1, S2. now rewrite E, S1, S2.
Qed.

(** B10. On a valid table every slice of what encode returns is returned for the bytes that it
    spells. *)
Corollary slice_canonical rs bs x y z : Valid rs -> Bytes bs -> encode rs bs = x ++ y ++ z ->
  encode rs (decode rs y) = y.
Proof.
  intros V B E. pose proof (decode_encode rs bs V B) as D. rewrite E, !decode_app in D.
  assert (Bx : Bytes (decode rs x ++ decode rs y ++ decode rs z)) by (rewrite D; exact B).
  apply Forall_app in Bx as [Bx Byz]. pose proof Byz as Byz'. apply Forall_app in Byz' as [By Bz].
  pose proof (proj1 (encode_iff_spec rs bs _) E) as S. rewrite <- D in S.
  assert (NB : NE rs (decode rs x ++ decode rs y ++ decode rs z)) by (apply ne_bytes; rewrite D; exact B).
  destruct (split_at_boundary rs _ _ V S NB _ _ x (y ++ z) eq_refl eq_refl) as [_ S2].
  { apply decode_bytes. exact Bx. }
  destruct (split_at_boundary rs _ _ V S2 (ne_bytes rs _ Byz) _ _ y z eq_refl eq_refl) as [S3 _].
  { apply decode_bytes. exact By. }
  apply encode_iff_spec. exact S3.
Qed.

(* -------------------------------------- bytes that no token holds side by side *)
Definition Infix (x y : nat) (s : list nat) := exists u v, s = u ++ x :: y :: v.
Definition SafePair (rs : list (nat*nat)) (x y : nat) := forall t, ~ Infix x y (decode1 rs t).

Lemma cut_or_cover rs ts : forall a b, decode rs ts = a ++ b ->
  (exists l r, ts = l ++ r /\ decode rs l = a) \/
  (exists l t r p q, ts = l ++ t :: r /\ decode1 rs t = p ++ q /\ p <> [] /\ q <> [] /\ a = decode rs l ++ p
     /\ b = q ++ decode rs r).
Proof.
  induction ts as [|t ts IH]; intros a b E.
  - left. exists [], []. symmetry in E. apply app_eq_nil in E as [-> _]. auto.
  - destruct a as [|x a0] eqn:EA.
    { left. exists [], (t :: ts). auto. }
    rewrite <- EA in *. assert (NA : a <> []) by (subst; discriminate). clear x a0 EA.
    rewrite decode_cons in E.
    destruct (le_lt_dec (length (decode1 rs t)) (length a)) as [L|L].
    + assert (F : a = decode1 rs t ++ skipn (length (decode1 rs t)) a).
      { rewrite <- (firstn_skipn (length (decode1 rs t)) a) at 1. f_equal.
        apply (f_equal (firstn (length (decode1 rs t)))) in E.
        rewrite !firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r in E.
        replace (length (decode1 rs t) - length a) with 0 in E by lia.
        rewrite firstn_O, app_nil_r in E. symmetry. exact E. }
      rewrite F, <- app_assoc in E. apply app_inv_head in E.
      destruct (IH _ _ E) as [(l & r & E1 & D1) | (l & t' & r & p & q & E1 & D1 & P & Q & A & B)].
      * left. exists (t :: l), r. subst ts. split; [reflexivity|]. rewrite decode_cons, D1. auto.
      * right. exists (t :: l), t', r, p, q. subst ts. repeat split; auto.
        rewrite decode_cons, <- app_assoc, <- A. exact F.
    + right. exists [], t, ts, a, (skipn (length a) (decode1 rs t)).
      assert (F : decode1 rs t = a ++ skipn (length a) (decode1 rs t)).
      { rewrite <- (firstn_skipn (length a) (decode1 rs t)) at 1. f_equal.
        apply (f_equal (firstn (length a))) in E.
        rewrite !firstn_app, firstn_all, Nat.sub_diag, firstn_O, app_nil_r in E.
        replace (length a - length (decode1 rs t)) with 0 in E by lia.
        rewrite firstn_O, app_nil_r in E. exact E. }
      split; [reflexivity|]. split; [exact F|]. split; [exact NA|]. split.
      * intros Z. rewrite Z, app_nil_r in F. rewrite F in L. lia.
      * split; [reflexivity|]. rewrite F, <- app_assoc in E. apply app_inv_head in E. symmetry. exact E.
Qed.

(** B9. On a valid table: if no token spells the bytes x y side by side, a text may be cut between
    them; encoding the two sides apart gives the tokens of the whole. *)
Theorem safe_pair_concat rs a x y b : Valid rs -> Bytes (a ++ [x]) -> Bytes (y :: b) ->
  SafePair rs x y ->
  encode rs ((a ++ [x]) ++ y :: b) = encode rs (a ++ [x]) ++ encode rs (y :: b).
Proof.
  intros V A B S. apply concat_safe_iff; auto.
  assert (D : decode rs (encode rs ((a ++ [x]) ++ y :: b)) = (a ++ [x]) ++ y :: b).
  { apply decode_encode; [exact V | apply Forall_app; split; assumption]. }
  destruct (cut_or_cover _ _ _ _ D) as [H | (l & t & r & p & q & E & Dt & P & Q & EA & EB)]; [exact H|].
  exfalso. apply (S t). destruct (exists_last P) as (p' & x' & ->).
  destruct q as [|y' q]; [contradiction|]. cbn [app] in EB. inversion EB; subst y'.
  rewrite app_assoc in EA. apply app_inj_tail in EA as [_ <-].
  exists p', q. rewrite Dt, <- app_assoc. reflexivity.
Qed.
