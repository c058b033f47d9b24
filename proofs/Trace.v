(* What is compared with the Python package, event by event: a refused event leaves the rollout as it
   was, and the run goes on. *)
From Coq Require Import List Arith PeanoNat.
From TitoNb Require Import Spec Textbook Cuts Render Close Delta Restart Adopted IdsMode.
Import ListNotations.

Definition view (s : state) : list token * list bool * list bool * list (kind * nat * nat) * option (list message) :=
  (ids s, mask s, score_mask s, spans s, match opened s with None => Some (messages s) | Some _ => None end).
Definition short_view (s : state) : nat * list (kind * nat * nat) := (length (ids s), spans s).

Definition marks (s : state) : list token * list bool * list bool := (ids s, mask s, score_mask s).

(* what can be seen after each event, none for a refused one; and the rollout at the end *)
Fixpoint trace {A} (see : state -> A) (rs : table) (x : rollout) (es : list event)
  : list (option A) * rollout :=
  match es with
  | [] => ([], x)
  | e :: es' =>
      match happens (Textbook.encode rs) (decode rs) x e with
      | Some x' => let (seen, last) := trace see rs x' es' in (Some (see (current x')) :: seen, last)
      | None => let (seen, last) := trace see rs x es' in (None :: seen, last)
      end
  end.
Definition run_rollout (rs : table) (es : list event) :=
  let (seen, last) := trace view rs fresh es in (seen, map marks (examples last)).
Definition run_rollout_short (rs : table) (es : list event) :=
  let (seen, last) := trace short_view rs fresh es in (seen, map marks (examples last)).

Definition table_render_ids (rs : table) (ms : list message) : list token :=
  render_ids (Textbook.encode rs) (256 + length rs) (257 + length rs) ms.
Definition table_parse_ids (rs : table) (g : list token) : option (list message) :=
  parse_ids (decode rs) (256 + length rs) (256 + length rs) (257 + length rs) g.
