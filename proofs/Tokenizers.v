(* The delta tokenizer over concrete tokenizers: ranked BPE alone, and ranked BPE behind any
   pre-tokenizer that only cuts. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Glue Canonical Render Close Delta Restart.
Import ListNotations.

(* a pre-tokenizer yields pieces whose concatenation is the text *)
Definition Cuts (pieces : list nat -> list (list nat)) : Prop := forall b, concat (pieces b) = b.
Definition encode_pieces (rs : table) (pieces : list nat -> list (list nat)) (b : list nat) :=
  flat_map (encode rs) (pieces b).

(** B4. On a valid table, behind any pre-tokenizer that only cuts, decoding what was encoded gives
    the bytes back. *)
Theorem decode_encode_pieces rs pieces b : Valid rs -> Cuts pieces -> Bytes b ->
  decode rs (encode_pieces rs pieces b) = b.
Proof.
  intros V C B. unfold encode_pieces. rewrite <- (C b) in B. rewrite <- (C b) at 2. revert B.
  induction (pieces b) as [|p ps IH]; intros B; [reflexivity|].
  cbn [flat_map concat] in *. apply Forall_app in B as [B1 B2].
  rewrite decode_app, (decode_encode rs p V B1), IH by exact B2. reflexivity.
Qed.

Lemma encode_pieces_range rs pieces b : Cuts pieces -> Bytes b -> InRange rs (encode_pieces rs pieces b).
Proof.
  intros C B. unfold encode_pieces. rewrite <- (C b) in B. unfold InRange. revert B.
  induction (pieces b) as [|p ps IH]; intros B; [constructor|]. cbn [flat_map concat] in *.
  apply Forall_app in B as [B1 B2]. apply Forall_app. split; [now apply encode_range | now apply IH].
Qed.

(** D4. Ranked BPE on a valid table, behind any pre-tokenizer that only cuts: after any operations and
    restarts that succeed, in every training example the bytes of the ids are the rendered messages,
    then the open turn; and where no turn is open they parse back to the messages. *)
Theorem delta_pieces rs pieces es x : Valid rs -> Cuts pieces -> Forall EventOk es ->
  happen (encode_pieces rs pieces) (decode rs) fresh es = Some x ->
  forall s, In s (examples x) ->
  decode rs (ids s) = render (messages s) ++ open_bytes (decode rs) (opened s) /\
  (opened s = None -> parse (decode rs (ids s)) = Some (messages s)).
Proof.
  intros V C O R s I.
  pose proof (every_example_agrees (encode_pieces rs pieces) (decode rs) (decode_app rs)
    (fun b B => decode_encode_pieces rs pieces b V C B) es O x R s I) as E.
  split; [exact E|]. intros N. rewrite E, N. cbn [open_bytes]. rewrite app_nil_r. apply parse_render.
Qed.

(** D4. The same for ranked BPE alone. *)
Theorem delta_bpe rs es x : Valid rs -> Forall EventOk es ->
  happen (encode rs) (decode rs) fresh es = Some x ->
  forall s, In s (examples x) ->
  decode rs (ids s) = render (messages s) ++ open_bytes (decode rs) (opened s) /\
  (opened s = None -> parse (decode rs (ids s)) = Some (messages s)).
Proof.
  intros V O R s I.
  pose proof (every_example_agrees (encode rs) (decode rs) (decode_app rs)
    (fun b B => decode_encode rs b V B) es O x R s I) as E.
  split; [exact E|]. intros N. rewrite E, N. cbn [open_bytes]. rewrite app_nil_r. apply parse_render.
Qed.

(* two runs, evaluated *)
Definition hi := Append (Msg User [104; 105]).

(** D5. One run, evaluated: the model writes a body and the end delimiter, and closing adds the
    newline with loss 0. *)
Example a_run :
  option_map (fun s => (messages s, completions s, length (filter (fun b => b) (mask s))))
    (run_ops (encode []) (decode []) empty
       [hi; OpenTurn Assistant; Sample [111; 107]; Sample IM_END; CloseTurn])
  = Some ([Msg User [104; 105]; Msg Assistant [111; 107]], [[111; 107] ++ IM_END], 12).
Proof. vm_compute. reflexivity. Qed.

(** D5. One run, evaluated: what the model wrote spells the beginning of a further message, and
    sampling it is refused. *)
Example a_forged_turn :
  run_ops (encode []) (decode []) empty
    [hi; OpenTurn Assistant; Sample (MESSAGE_END ++ IM_START); CloseTurn] = None.
Proof. vm_compute. reflexivity. Qed.

(** D5. One run, evaluated: what the model wrote stops inside a delimiter, and closing is refused. *)
Example a_torn_turn :
  run_ops (encode []) (decode []) empty
    [hi; OpenTurn Assistant; Sample [111; 107; 60; 124; 105; 109]; CloseTurn] = None.
Proof. vm_compute. reflexivity. Qed.
