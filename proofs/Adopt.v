(* Two remaining parts of the delta tokenizer.
   1. A recorded buffer of ids (from_tokens): a message boundary need not be a token boundary, so
      insert may have to refuse.  It refuses exactly then.
   2. Ids mode: delimiters are control ids outside of the table, content needs no escape. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Cuts Sweep Glue Canonical Render.
Import ListNotations.
Local Opaque encode decode.

(* --------------------------------------------------------- 1. a recorded buffer *)
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

(* D6: if insert accepts, every old id is kept in order and the edited conversation parses back *)
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

(* D6: it refuses exactly where the message boundary is inside a token *)
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

(* -------------------------------------------------------------------- 2. ids mode *)
Section IdsMode.
(* any way to encode content, with or without a pre-tokenizer, that decodes to what was encoded and
   writes ids of the vocabulary only; the control ids are outside of the vocabulary *)
Variables (enc : list nat -> list token) (dec : list token -> list nat).
Variables (ok : list nat -> Prop) (vocabulary : nat) (c_start c_end : token).
Hypothesis dec_enc : forall b, ok b -> dec (enc b) = b.
Hypothesis enc_range : forall b, ok b -> Forall (fun t => t < vocabulary) (enc b).
Hypothesis start_control : vocabulary <= c_start.
Hypothesis end_control : vocabulary <= c_end.

Definition text (m : message) : list nat := role_name (mrole m) ++ [NL] ++ content m.
Definition MsgOk (m : message) : Prop := ok (text m).

Definition render_ids1 (m : message) : list token :=
  c_start :: enc (text m) ++ c_end :: enc [NL].
Definition render_ids (ms : list message) : list token := flat_map render_ids1 ms.

(* the ids in front of the first c_end, and the rest behind it *)
Fixpoint until_end (g : list token) : option (list token * list token) :=
  match g with
  | [] => None
  | t :: g' => if t =? c_end then Some ([], g')
               else match until_end g' with None => None | Some (a, b) => Some (t :: a, b) end
  end.

Definition parse_ids1 (g : list token) : option (message * list token) :=
  match g with
  | t :: g1 =>
      if t =? c_start then
        match until_end g1 with None => None | Some (a, g2) =>
        match parse_role (dec a) with None => None | Some (r, c) =>
        match strip (enc [NL]) g2 with None => None | Some g3 => Some (Msg r c, g3)
        end end end
      else None
  | [] => None
  end.

Fixpoint parse_ids_fuel (n : nat) (g : list token) : option (list message) :=
  match g with
  | [] => Some []
  | _ => match n with
         | 0 => None
         | S n' => match parse_ids1 g with
                   | None => None
                   | Some (m, rest) => option_map (cons m) (parse_ids_fuel n' rest)
                   end
         end
  end.
Definition parse_ids (g : list token) : option (list message) := parse_ids_fuel (length g) g.

Lemma until_end_app a g : Forall (fun t => t < vocabulary) a ->
  until_end (a ++ c_end :: g) = Some (a, g).
Proof.
  induction 1 as [|t a L _ IH]; cbn [app until_end].
  - now rewrite Nat.eqb_refl.
  - rewrite IH. replace (t =? c_end) with false; [reflexivity|].
    symmetry. apply Nat.eqb_neq. lia.
Qed.

Lemma parse_ids1_render m g : MsgOk m -> parse_ids1 (render_ids1 m ++ g) = Some (m, g).
Proof.
  intros K. unfold render_ids1. cbn [app parse_ids1]. rewrite Nat.eqb_refl.
  rewrite <- app_assoc. cbn [app]. rewrite (until_end_app _ _ (enc_range _ K)), (dec_enc _ K).
  unfold text. rewrite parse_role_app, strip_app. now destruct m.
Qed.

(* R1 in ids mode: no escape, and still every body comes back, delimiters in it or not *)
Theorem parse_render_ids ms : Forall MsgOk ms -> parse_ids (render_ids ms) = Some ms.
Proof.
  intros F. unfold parse_ids.
  assert (G : forall n, length (render_ids ms) <= n -> parse_ids_fuel n (render_ids ms) = Some ms);
    [|apply G; lia].
  induction F as [|m ms K _ IH]; intros n L; [now destruct n|].
  change (render_ids (m :: ms)) with (render_ids1 m ++ render_ids ms) in *.
  rewrite app_length in L. assert (1 <= length (render_ids1 m)) by (cbn; lia).
  destruct n as [|n]; [lia|].
  pose proof (parse_ids1_render m (render_ids ms) K) as P.
  destruct (render_ids1 m ++ render_ids ms) as [|x xs] eqn:E; [discriminate P|].
  cbn [parse_ids_fuel]. rewrite P, IH by lia. reflexivity.
Qed.

(* D9: content never yields a control id *)
Theorem content_no_control m : MsgOk m -> ~ In c_start (enc (text m)) /\ ~ In c_end (enc (text m)).
Proof.
  intros K. pose proof (enc_range _ K) as F. rewrite Forall_forall in F.
  split; intros I; apply F in I; lia.
Qed.
End IdsMode.

(* the table's own encoder is such a way to encode *)
Theorem ids_mode_round_trip rs c_start c_end ms : Valid rs ->
  256 + length rs <= c_start -> 256 + length rs <= c_end ->
  Forall (fun m => Bytes (content m)) ms ->
  parse_ids (encode rs) (decode rs) c_start c_end
    (render_ids (encode rs) c_start c_end ms) = Some ms.
Proof.
  intros V A B F.
  apply (parse_render_ids (encode rs) (decode rs) Bytes (256 + length rs)); auto.
  - intros b K. now apply decode_encode.
  - intros b K. now apply encode_range.
  - revert F. apply Forall_impl. intros m K. unfold MsgOk, text, Bytes.
    apply Forall_app; split; [destruct (mrole m); unfold role_name; bytes|].
    apply Forall_app; split; [unfold NL; bytes | exact K].
Qed.
