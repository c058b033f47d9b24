(* The delta tokenizer over concrete tokenizers: ranked BPE alone, and ranked BPE behind any
   pre-tokenizer that only cuts the text. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Render Delta.
Import ListNotations.

(* a pre-tokenizer yields pieces whose concatenation is the text *)
Definition Cuts (pieces : list nat -> list (list nat)) : Prop := forall b, concat (pieces b) = b.
Definition encode_pieces (rs : table) (pieces : list nat -> list (list nat)) (b : list nat) :=
  flat_map (encode rs) (pieces b).

(* B4 with a pre-tokenizer: text comes back, whatever the cuts *)
Theorem decode_encode_pieces rs pieces b : Valid rs -> Cuts pieces -> Bytes b ->
  decode rs (encode_pieces rs pieces b) = b.
Proof.
  intros V C B. unfold encode_pieces. rewrite <- (C b) in B. rewrite <- (C b) at 2. revert B.
  induction (pieces b) as [|p ps IH]; intros B; [reflexivity|].
  cbn [flat_map concat] in *. apply Forall_app in B as [B1 B2].
  rewrite decode_app, (decode_encode rs p V B1), IH by exact B2. reflexivity.
Qed.

(* D4 for both: after any operations that succeed the bytes of the ids are the rendered messages,
   then the open turn; and between turns they parse back to the messages. *)
Theorem delta_pieces rs pieces os s : Valid rs -> Cuts pieces -> Forall OpOk os ->
  run_ops (encode_pieces rs pieces) (decode rs) empty os = Some s ->
  decode rs (ids s) = render (messages s) ++ open_bytes (decode rs) (opened s) /\
  (opened s = None -> parse (decode rs (ids s)) = Some (messages s)).
Proof.
  intros V C O R. pose proof (decode_encode_pieces rs pieces) as DE.
  assert (J : Inv (decode rs) s).
  { apply (inv_always (encode_pieces rs pieces) (decode rs) (decode_app rs)
             (fun b B => DE b V C B) os O s R). }
  split; [now apply views_agree; [apply decode_app|] | intros N].
  apply parse_agrees; [apply decode_app | exact J | exact N].
Qed.

Theorem delta_bpe rs os s : Valid rs -> Forall OpOk os ->
  run_ops (encode rs) (decode rs) empty os = Some s ->
  decode rs (ids s) = render (messages s) ++ open_bytes (decode rs) (opened s) /\
  (opened s = None -> parse (decode rs (ids s)) = Some (messages s)).
Proof.
  intros V O R.
  assert (J : Inv (decode rs) s).
  { apply (inv_always (encode rs) (decode rs) (decode_app rs)
             (fun b B => decode_encode rs b V B) os O s R). }
  split; [now apply views_agree; [apply decode_app|] | intros N].
  apply parse_agrees; [apply decode_app | exact J | exact N].
Qed.

(* One concrete run, evaluated: the model writes "ok" and then the delimiter, the newline is added
   with loss 0; a generation that spells a further turn cannot be closed. *)
Definition hi := Append (Msg User [104; 105]).
Example a_run :
  option_map (fun s => (messages s, completions s, length (filter (fun b => b) (mask s))))
    (run_ops (encode []) (decode []) empty
       [hi; OpenTurn Assistant; Sample [111; 107]; Sample IM_END; CloseTurn])
  = Some ([Msg User [104; 105]; Msg Assistant [111; 107]], [[111; 107] ++ IM_END], 12).
Proof. vm_compute. reflexivity. Qed.
Example a_forged_turn :
  run_ops (encode []) (decode []) empty
    [hi; OpenTurn Assistant; Sample (FRAME_END ++ IM_START); CloseTurn] = None.
Proof. vm_compute. reflexivity. Qed.
