(* One request a line: the function, then its arguments, separated by '|'.  vectors.py writes the
   requests and knows the same format for the answers. *)
open Model

let parts c s = List.filter (fun x -> x <> "") (List.map String.trim (String.split_on_char c s))
let ints s = List.map int_of_string (parts ' ' s)
let cut c s = let i = String.index s c in (String.sub s 0 i, String.sub s (i + 1) (String.length s - i - 1))
let pair s = let a, b = cut ',' s in (int_of_string a, int_of_string b)
let pairs s = List.map pair (parts ';' s)
let role = function "0" -> System | "1" -> User | "2" -> Assistant | _ -> Tool
let message s = let r, c = cut ':' s in { mrole = role (String.trim r); content = ints c }
let messages s = List.map message (parts ';' s)
let event s =
  let rest = String.sub s 1 (String.length s - 1) in
  match s.[0] with
  | 'A' -> On (Append (message rest))
  | 'O' -> On (OpenTurn Assistant)
  | 'S' -> On (Sample (ints rest))
  | 'C' -> On CloseTurn
  | 'D' -> On Discard
  | 'I' -> let k, m = cut ' ' (String.trim rest) in On (Insert (int_of_string k, message m))
  | 'R' -> On (Remove (int_of_string (String.trim rest)))
  | 'X' -> Restart (messages rest)
  | _ -> failwith "event"

let of_ints l = String.concat " " (List.map string_of_int l)
let of_pairs l = String.concat ";" (List.map (fun (a, b) -> Printf.sprintf "%d,%d" a b) l)
let of_option f = function None -> "none" | Some x -> f x
let of_role = function System -> "0" | User -> "1" | Assistant -> "2" | Tool -> "3"
let of_messages l = String.concat ";" (List.map (fun m -> of_role m.mrole ^ ":" ^ of_ints m.content) l)
let of_bits l = String.concat "" (List.map (fun b -> if b then "1" else "0") l)
let of_kind = function
  | Context -> "context" | Rendered -> "rendered" | Prompt -> "prompt"
  | Sampled -> "sampled" | Closed -> "closed" | Replayed -> "replayed"
let of_spans l = String.concat ";" (List.map (fun ((k, a), b) -> Printf.sprintf "%s %d %d" (of_kind k) a b) l)
let of_view ((((ids, mask), score), spans), read) =
  String.concat " & " [of_ints ids; of_bits mask; of_bits score; of_spans spans; of_option of_messages read]
let of_marks ((ids, mask), score) = String.concat " & " [of_ints ids; of_bits mask; of_bits score]
let of_run (seen, last) =
  String.concat " / " (List.map (of_option of_view) seen) ^ " // " ^ String.concat " / " (List.map of_marks last)

let answer f a = match f with
  | "encode" -> of_ints (encode_by_length (int_of_string a.(0)) (pairs a.(1)) (ints a.(2)))
  | "encode_textbook" -> of_ints (encode_textbook (pairs a.(0)) (ints a.(1)))
  | "encode_short" -> of_ints (encode_short (pairs a.(0)) (ints a.(1)))
  | "encode_long" -> of_ints (encode_long (pairs a.(0)) (ints a.(1)))
  | "derive" -> let steps, ids = derive (pairs a.(0)) (ints a.(1)) in of_pairs steps ^ " & " ^ of_ints ids
  | "decode" -> of_ints (decode (pairs a.(0)) (ints a.(1)))
  | "check_replay" -> string_of_bool (check_replay (pairs a.(0)) (ints a.(1)) (pairs a.(2)) (ints a.(3)))
  | "check_linear" -> string_of_bool (check_linear (pairs a.(0)) (ints a.(1)) (pairs a.(2)) (ints a.(3)))
  | "is_canonical" -> string_of_bool (is_canonical (pairs a.(0)) (ints a.(1)))
  | "first_noncanonical" -> of_option string_of_int (first_noncanonical (pairs a.(0)) (ints a.(1)))
  | "first_noncanonical_once" -> of_option string_of_int (first_noncanonical_once (pairs a.(0)) (ints a.(1)))
  | "inner" -> string_of_bool (has (pair a.(1)) (inner_pairs (pairs a.(0))))
  | "splits_safely" -> string_of_bool (splits_safely (pairs a.(0)) (ints a.(1)) (ints a.(2)))
  | "escape" -> of_ints (escape (ints a.(0)))
  | "unescape" -> of_option of_ints (unescape (ints a.(0)))
  | "render" -> of_ints (render (messages a.(0)))
  | "parse" -> of_option of_messages (parse (ints a.(0)))
  | "render_ids" -> of_ints (table_render_ids (pairs a.(0)) (messages a.(1)))
  | "parse_ids" -> of_option of_messages (table_parse_ids (pairs a.(0)) (ints a.(1)))
  | "insert_flat" ->
    of_option of_ints (insert_flat (pairs a.(0)) (ints a.(1)) (messages a.(2)) (int_of_string a.(3)) (message a.(4)))
  | "rollout" -> of_run (run_rollout (pairs a.(0)) (List.map event (parts '/' a.(1))))
  | _ -> failwith ("no function " ^ f)

let () =
  try
    while true do
      match String.split_on_char '|' (input_line stdin) with
      | f :: a -> print_endline (answer f (Array.of_list a))
      | [] -> ()
    done
  with End_of_file -> ()
