(* What is not true, with the smallest witness, evaluated by the kernel; and how far one byte can reach,
   for every n. *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec Textbook Render Sweep Border Canonical Certificate.
Import ListNotations.

(* letters of the examples *)
Definition a := 97. Definition b := 98. Definition c := 99. Definition x := 120.

(* not true: encode (decode ts) = ts.  Rules he, ll, (ll)o, (he)(llo): [he; llo] becomes one token *)
Definition hello : list (nat * nat) := [(104, 101); (108, 108); (257, 111); (256, 258)].
(** not B. Encoding what a token sequence spells need not give the sequence: rules he, ll, (ll)o,
    (he)(llo); he, llo becomes one token. *)
Example not_stable : encode hello (decode hello [256; 258]) = [259].
Proof. vm_compute. reflexivity. Qed.
(** not B. In that sequence first_noncanonical names index 1. *)
Example not_stable_named : first_noncanonical hello [256; 258] = Some 1.
Proof. vm_compute. reflexivity. Qed.

(** not B. Encoding two texts apart need not give the tokens of the whole: rule bb, texts b and b. *)
Example not_additive : encode [(b, b)] ([b] ++ [b]) <> encode [(b, b)] [b] ++ encode [(b, b)] [b].
Proof. vm_compute. discriminate. Qed.

(** not B. One byte appended changes the token to its left. *)
Example reaches_left : encode [(b, c); (a, b)] [a; b] = [257] /\
  encode [(b, c); (a, b)] [a; b; c] = [a; 256].
Proof. vm_compute. split; reflexivity. Qed.
(** not B. One byte prepended changes the token to its right. *)
Example reaches_right : encode [(x, a); (a, b)] [a; b] = [257] /\
  encode [(x, a); (a, b)] [x; a; b] = [256; b].
Proof. vm_compute. split; reflexivity. Qed.

(* every id changes: bcdefg is bc de fg, and with h it is b cd ef gh *)
Definition chain : list (nat * nat) := [(103,104);(102,103);(101,102);(100,101);(99,100);(98,99)].
(** not B. One byte appended may change every token of a text: bc de fg becomes b cd ef gh. *)
Example all_change : encode chain [98;99;100;101;102;103] = [261; 259; 257] /\
  encode chain [98;99;100;101;102;103;104] = [98; 260; 258; 256].
Proof. vm_compute. split; reflexivity. Qed.

(* without the order clause of Valid the sweep is wrong, and a right certificate is refused *)
Definition forward : list (nat * nat) := [(a, 257); (a, b)].
(** not B. On a table whose rule reads a token that is made later, the rule-by-rule sweep does not
    return the tokens of encode. *)
Example forward_sweep : encode forward [a; a; b] = [256] /\ encode_sweep forward [a; a; b] = [a; 257].
Proof. vm_compute. split; reflexivity. Qed.
(** not B. On that table the linear checker refuses the certificate that the specification makes. *)
Example forward_certificate : check_linear forward [a; a; b] [(1, 1); (0, 0)] [256] = false.
Proof. vm_compute. reflexivity. Qed.

(** not B. A valid table may hold a token that no text is ever encoded to. *)
Example unreachable : token_ok [(a, a); (a, 256)] 257 = false /\
  encode [(a, a); (a, 256)] [a; a; a] = [256; a].
Proof. vm_compute. split; reflexivity. Qed.

(* an escape that does not escape itself is not injective *)
Fixpoint naive_escape (s : list nat) : list nat :=
  match s with
  | [] => []
  | d :: s' => if (d =? LT) && starts_bar s' then d :: BS :: naive_escape s' else d :: naive_escape s'
  end.
(** not B. An escape that does not escape its own mark sends two bodies to one. *)
Example naive_collides : naive_escape [LT; BAR] = naive_escape [LT; BS; BAR].
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------ right reach is unbounded, fixed table *)
Definition runs : list (nat * nat) := [(a, a); (a, c)].    (* 256 = aa, 257 = ac *)

Lemma runs_valid : Valid runs.
Proof.
  split.
  - constructor; [intros [H|[]]; discriminate|]. constructor; [intros []|constructor].
  - intros [|[|r]] p N; cbn in N; [| |destruct r; discriminate]; inversion N; subst;
      unfold a, c; cbn [fst snd]; lia.
Qed.

Lemma sweep_aa n tl : sweep1 (a, a) 256 (repeat a (2 * n) ++ tl) =
  repeat 256 n ++ sweep1 (a, a) 256 tl.
Proof.
  induction n as [|n IH]; [reflexivity|].
  replace (2 * S n) with (S (S (2 * n))) by lia.
  change (repeat a (S (S (2 * n))) ++ tl) with (a :: a :: (repeat a (2 * n) ++ tl)).
  change (sweep1 (a, a) 256 (a :: a :: (repeat a (2 * n) ++ tl))) with
    (256 :: sweep1 (a, a) 256 (repeat a (2 * n) ++ tl)).
  rewrite IH. reflexivity.
Qed.

Lemma sweep_skip n tl : tl <> [] -> sweep1 (a, c) 257 (repeat 256 n ++ tl) =
  repeat 256 n ++ sweep1 (a, c) 257 tl.
Proof.
  intros N. induction n as [|n IH]; [reflexivity|].
  change (repeat 256 (S n) ++ tl) with (256 :: (repeat 256 n ++ tl)).
  change (repeat 256 (S n) ++ sweep1 (a, c) 257 tl) with
    (256 :: (repeat 256 n ++ sweep1 (a, c) 257 tl)).
  rewrite <- IH. destruct (repeat 256 n ++ tl) as [|d ds] eqn:E.
  - apply app_eq_nil in E as [_ E]. contradiction.
  - reflexivity.
Qed.

(** not B. With two fixed rules, for every n, one byte prepended to a text of 2n + 1 bytes changes
    its last token. *)
Theorem right_reach_unbounded n :
  encode runs (repeat a (2 * n) ++ [c]) = repeat 256 n ++ [c] /\
  encode runs (a :: repeat a (2 * n) ++ [c]) = repeat 256 n ++ [257].
Proof.
  rewrite <- !(encode_sweep_correct runs) by exact runs_valid. unfold encode_sweep, initial.
  split.
  - change (sweep runs 0 (repeat a (2 * n) ++ [c])) with
      (sweep1 (a, c) 257 (sweep1 (a, a) 256 (repeat a (2 * n) ++ [c]))).
    rewrite sweep_aa. rewrite sweep_skip by discriminate. reflexivity.
  - replace (a :: repeat a (2 * n) ++ [c]) with (repeat a (2 * n) ++ [a; c]).
    + change (sweep runs 0 (repeat a (2 * n) ++ [a; c])) with
        (sweep1 (a, c) 257 (sweep1 (a, a) 256 (repeat a (2 * n) ++ [a; c]))).
      rewrite sweep_aa. rewrite sweep_skip by discriminate. reflexivity.
    + generalize (2 * n) as k. induction k as [|k IH]; [reflexivity|].
      cbn [repeat app]. now rewrite IH.
Qed.
