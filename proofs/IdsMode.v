(* Ids mode: delimiters are control ids outside of the table, content needs no escape
   (delta.message_ids, delta.parse_ids). *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Canonical Render Tokenizers.
Import ListNotations.
Local Opaque encode decode.

Section IdsMode.
(* any way to encode content, with or without a pre-tokenizer, that decodes to what was encoded and
   writes ids of the vocabulary only; the control ids are outside of the vocabulary *)
Variables (enc : list nat -> list token) (dec : list token -> list nat).
Variables (ok : list nat -> Prop) (vocabulary : nat) (c_start c_end : token).
Hypothesis dec_enc : forall b, ok b -> dec (enc b) = b.
Hypothesis enc_range : forall b, ok b -> Forall (fun t => t < vocabulary) (enc b).
Hypothesis newline_ok : ok [NL].
Hypothesis start_control : vocabulary <= c_start.
Hypothesis end_control : vocabulary <= c_end.

Definition text (m : message) : list nat := role_name (mrole m) ++ [NL] ++ content m.
Definition MsgOk (m : message) : Prop := ok (text m).

Definition render_ids1 (m : message) : list token :=
  c_start :: enc (text m) ++ c_end :: enc [NL].
Definition render_ids (ms : list message) : list token := flat_map render_ids1 ms.

(* the ids in front of the first control id, and the rest *)
Fixpoint plain (g : list token) : list token * list token :=
  match g with
  | [] => ([], [])
  | t :: g' => if t <? vocabulary then let (a, b) := plain g' in (t :: a, b) else ([], g)
  end.

Definition parse_ids1 (g : list token) : option (message * list token) :=
  match g with
  | t :: g1 =>
      if t =? c_start then
        match plain g1 with
        | (a, e :: g2) =>
            if e =? c_end then
              match parse_role (dec a) with
              | None => None
              | Some (r, c) => let (n, g3) := plain g2 in
                  if list_eq_dec Nat.eq_dec (dec n) [NL] then Some (Msg r c, g3) else None
              end
            else None
        | _ => None
        end
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

Definition AtControl (g : list token) : Prop := g = [] \/ exists c g', g = c :: g' /\ vocabulary <= c.

Lemma plain_app a g : Forall (fun t => t < vocabulary) a -> AtControl g -> plain (a ++ g) = (a, g).
Proof.
  intros F [->|(c & g' & -> & C)]; induction F as [|t a L _ IH]; cbn [app plain].
  - reflexivity.
  - apply Nat.ltb_lt in L. now rewrite L, IH.
  - replace (c <? vocabulary) with false by (symmetry; now apply Nat.ltb_ge). reflexivity.
  - apply Nat.ltb_lt in L. now rewrite L, IH.
Qed.

Lemma parse_ids1_render m g : MsgOk m -> AtControl g -> parse_ids1 (render_ids1 m ++ g) = Some (m, g).
Proof.
  intros K C. unfold render_ids1. cbn [app parse_ids1]. rewrite Nat.eqb_refl, <- app_assoc. cbn [app].
  rewrite plain_app; [|now apply enc_range | right; eauto].
  rewrite Nat.eqb_refl, (dec_enc _ K). unfold text. rewrite parse_role_app.
  rewrite plain_app; [|now apply enc_range | exact C]. rewrite (dec_enc _ newline_ok).
  destruct (list_eq_dec Nat.eq_dec [NL] [NL]); [now destruct m | contradiction].
Qed.

(** R1, D4. Ids mode, over any encoder of content that decodes to what was encoded and writes ids of
    the vocabulary only: there is no escape, and still the messages come back from the ids, with
    delimiters spelled in their bodies or not. *)
Theorem parse_render_ids ms : Forall MsgOk ms -> parse_ids (render_ids ms) = Some ms.
Proof.
  intros F. unfold parse_ids.
  assert (G : forall n, length (render_ids ms) <= n -> parse_ids_fuel n (render_ids ms) = Some ms);
    [|apply G; lia].
  induction F as [|m ms K _ IH]; intros n L; [now destruct n|].
  change (render_ids (m :: ms)) with (render_ids1 m ++ render_ids ms) in *.
  rewrite app_length in L. assert (1 <= length (render_ids1 m)) by (cbn; lia).
  destruct n as [|n]; [lia|].
  assert (C : AtControl (render_ids ms)).
  { destruct ms as [|m' ms]; [now left|]. right. exists c_start. eexists. split; [reflexivity | exact start_control]. }
  pose proof (parse_ids1_render m (render_ids ms) K C) as P.
  destruct (render_ids1 m ++ render_ids ms) as [|x xs] eqn:E; [discriminate P|].
  cbn [parse_ids_fuel]. rewrite P, IH by lia. reflexivity.
Qed.

(** D9. Ids mode, over any such encoder: the ids of content hold no control id. *)
Theorem content_no_control m : MsgOk m -> ~ In c_start (enc (text m)) /\ ~ In c_end (enc (text m)).
Proof.
  intros K. pose proof (enc_range _ K) as F. rewrite Forall_forall in F.
  split; intros I; apply F in I; lia.
Qed.
End IdsMode.

Lemma text_bytes m : Bytes (content m) -> Bytes (text m).
Proof.
  intros K. unfold text, Bytes. apply Forall_app; split; [destruct (mrole m); unfold role_name; bytes|].
  apply Forall_app; split; [unfold NL; bytes | exact K].
Qed.

(** R1, D4, D9. Ranked BPE on a valid table, behind any pre-tokenizer that only cuts, is such an
    encoder: with control ids from the size of the table up, every conversation of byte bodies comes
    back from its ids, and no content holds a control id. *)
Theorem ids_mode_round_trip rs pieces c_start c_end ms : Valid rs -> Cuts pieces ->
  256 + length rs <= c_start -> 256 + length rs <= c_end ->
  Forall (fun m => Bytes (content m)) ms ->
  parse_ids (decode rs) (256 + length rs) c_start c_end
    (render_ids (encode_pieces rs pieces) c_start c_end ms) = Some ms /\
  Forall (fun m => ~ In c_start (encode_pieces rs pieces (text m)) /\
                   ~ In c_end (encode_pieces rs pieces (text m))) ms.
Proof.
  intros V C A B F.
  assert (DE : forall b, Bytes b -> decode rs (encode_pieces rs pieces b) = b)
    by (intros b K; now apply decode_encode_pieces).
  assert (ER : forall b, Bytes b -> Forall (fun t => t < 256 + length rs) (encode_pieces rs pieces b))
    by (intros b K; now apply encode_pieces_range).
  assert (OK : Forall (MsgOk Bytes) ms).
  { revert F. apply Forall_impl. intros m K. now apply text_bytes. }
  split.
  - apply (parse_render_ids (encode_pieces rs pieces) (decode rs) Bytes (256 + length rs)); auto.
    unfold NL, Bytes. bytes.
  - revert OK. apply Forall_impl. intros m K.
    now apply (content_no_control (encode_pieces rs pieces) Bytes (256 + length rs) c_start c_end ER A B).
Qed.
