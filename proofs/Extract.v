(* The executable model as an OCaml program.  Trusted here, and nowhere else: extraction, OCaml, and
   that numbers stay small enough for a machine integer. *)
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt.
From TitoNb Require Import Spec Textbook Short Certificate Buckets Border Canonical InnerPairs Render Delta
  Restart Adopted Trace.
Extraction Language OCaml.
Extraction "model.ml" encode_by_length encode_textbook encode_short encode_long derive decode
  check_replay check_linear is_canonical first_noncanonical first_noncanonical_once has inner_pairs
  splits_safely escape unescape render parse table_render_ids table_parse_ids insert_flat run_rollout.
