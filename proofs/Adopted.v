(* A buffer of adopted ids (DeltaTokenizer.from_tokens): a message border need not be a token border,
   so an edit may have to refuse.  It refuses exactly then. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Cuts Glue Canonical Render.
Import ListNotations.
Local Opaque encode decode.

(* after how many ids do exactly n bytes lie to the left?  None: the place is inside a token *)
Fixpoint cut_at (rs : table) (n : nat) (g : list token) : option nat :=
  match n with
  | 0 => Some 0
  | _ => match g with
         | [] => None
         | t :: g' =>
             let k := length (decode1 rs t) in
             if k <=? n then option_map S (cut_at rs (n - k) g') else None
         end
  end.

Lemma cut_at_some rs g : forall n p, cut_at rs n g = Some p ->
  p <= length g /\ length (decode rs (firstn p g)) = n.
Proof.
  induction g as [|t g IH]; intros n p H.
  - destruct n; [|discriminate]. inversion H; subst. split; [cbn; lia | reflexivity].
  - destruct n as [|n]; [inversion H; subst; split; [cbn; lia | reflexivity]|].
    cbn [cut_at] in H. destruct (length (decode1 rs t) <=? S n) eqn:E; [|discriminate].
    apply Nat.leb_le in E.
    destruct (cut_at rs (S n - length (decode1 rs t)) g) as [q|] eqn:C; [|discriminate].
    inversion H; subst. destruct (IH _ _ C) as [L D]. cbn [length firstn].
    rewrite decode_cons, app_length, D. split; lia.
Qed.

Lemma cut_at_none rs g : forall n, NE rs g -> cut_at rs n g = None ->
  forall l r, g = l ++ r -> length (decode rs l) <> n.
Proof.
  induction g as [|t g IH]; intros n N H l r E D.
  - destruct n; [discriminate|]. symmetry in E. apply app_eq_nil in E as [-> _]. discriminate D.
  - destruct n as [|n]; [discriminate|]. cbn [cut_at] in H.
    destruct l as [|t' l]; [discriminate D|]. cbn [app] in E. inversion E; subst t' g.
    rewrite decode_cons, app_length in D. inversion N; subst.
    destruct (length (decode1 rs t) <=? S n) eqn:Q.
    + destruct (cut_at rs (S n - length (decode1 rs t)) (l ++ r)) as [q|] eqn:C; [discriminate|].
      apply (IH _ H3 C l r eq_refl). lia.
    + apply Nat.leb_gt in Q. lia.
Qed.

(* insert message m in front of message k of a buffer g that renders ms *)
Definition insert_flat (rs : table) (g : list token) (ms : list message) (k : nat) (m : message)
  : option (list token) :=
  match cut_at rs (length (render (firstn k ms))) g with
  | None => None
  | Some p => Some (firstn p g ++ encode rs (render1 m) ++ skipn p g)
  end.

(** D6. On a valid table, for adopted ids that spell a conversation: if a message can be inserted,
    every old id is kept in order and the conversation with the message parses back. *)
Theorem insert_flat_sound rs g ms k m g' : Valid rs -> Bytes (content m) ->
  decode rs g = render ms -> insert_flat rs g ms k m = Some g' ->
  (exists p, g' = firstn p g ++ encode rs (render1 m) ++ skipn p g) /\
  parse (decode rs g') = Some (firstn k ms ++ m :: skipn k ms).
Proof.
  intros V B D H. unfold insert_flat in H.
  destruct (cut_at rs (length (render (firstn k ms))) g) as [p|] eqn:C; [|discriminate].
  inversion H; subst; clear H. split; [eauto|].
  destruct (cut_at_some _ _ _ _ C) as [_ L].
  assert (E : decode rs (firstn p g) = render (firstn k ms) /\
              decode rs (skipn p g) = render (skipn k ms)).
  { rewrite <- (firstn_skipn p g) in D. rewrite decode_app in D.
    rewrite <- (firstn_skipn k ms) in D at 1.
    replace (render (firstn k ms ++ skipn k ms)) with (render (firstn k ms) ++ render (skipn k ms))
      in D by (unfold render; now rewrite flat_map_app).
    apply app_eq_app in D as (zs & [[E1 E2] | [E1 E2]]).
    - rewrite E1, app_length in L. assert (zs = []) by (apply length_zero_iff_nil; lia). subst zs.
      rewrite app_nil_r in E1. auto.
    - rewrite E1, app_length in L. assert (zs = []) by (apply length_zero_iff_nil; lia). subst zs.
      rewrite app_nil_r in E1. auto. }
  destruct E as [E1 E2]. rewrite !decode_app, E1, E2.
  rewrite (decode_encode rs _ V (bytes_render1 m B)). rewrite <- render_insert. apply parse_render.
Qed.

(** D6. On a valid table, for adopted ids that spell a conversation: inserting is refused iff the
    message border lies inside a token. *)
Theorem insert_flat_refuses rs g ms k m : Valid rs -> InRange rs g ->
  decode rs g = render ms ->
  (insert_flat rs g ms k m = None <->
   ~ exists l r, g = l ++ r /\ decode rs l = render (firstn k ms)).
Proof.
  intros V R D. unfold insert_flat. split.
  - destruct (cut_at rs (length (render (firstn k ms))) g) as [p|] eqn:C; [discriminate|].
    intros _ (l & r & E & F).
    apply (cut_at_none rs g _ (range_ne rs g V R) C l r E). now rewrite F.
  - intros N. destruct (cut_at rs (length (render (firstn k ms))) g) as [p|] eqn:C; [|reflexivity].
    exfalso. apply N. exists (firstn p g), (skipn p g). split; [symmetry; apply firstn_skipn|].
    destruct (cut_at_some _ _ _ _ C) as [_ L].
    rewrite <- (firstn_skipn p g) in D. rewrite decode_app in D.
    rewrite <- (firstn_skipn k ms) in D at 1.
    replace (render (firstn k ms ++ skipn k ms)) with (render (firstn k ms) ++ render (skipn k ms))
      in D by (unfold render; now rewrite flat_map_app).
    apply (f_equal (firstn (length (render (firstn k ms))))) in D.
    rewrite <- L in D at 1. rewrite !firstn_app, !firstn_all, !Nat.sub_diag, !firstn_O in D.
    now rewrite !app_nil_r in D.
Qed.
