(* Reversible message renderer: ChatML delimiters, run-length escape, strict parser.
   Every statement holds for all byte bodies (indeed for all lists of numbers). *)
From Coq Require Import List Arith Lia Bool PeanoNat.
From TitoNb Require Import Spec.
Import ListNotations.

Inductive role := System | User | Assistant | Tool.
Record message := Msg { mrole : role; content : list nat }.

Definition LT := 60.     (* '<' *)
Definition BS := 92.     (* '\' *)
Definition BAR := 124.   (* '|' *)
Definition NL := 10.     (* newline *)
(* <|im_start|> , <|im_end|> , and the end of a message: <|im_end|> newline *)
Definition IM_START := [60;124;105;109;95;115;116;97;114;116;124;62].
Definition IM_END   := [60;124;105;109;95;101;110;100;124;62].
Definition MESSAGE_END := IM_END ++ [NL].
Definition role_name (r : role) : list nat :=
  match r with
  | System => [115;121;115;116;101;109]
  | User => [117;115;101;114]
  | Assistant => [97;115;115;105;115;116;97;110;116]
  | Tool => [116;111;111;108]
  end.

(* ------------------------------------------------------------- the escape *)
(* '<', k backslashes, '|'  becomes  '<', k+1 backslashes, '|'.  All else is unchanged.
   One pass from the left; run = true means: the last bytes were '<' and then only backslashes. *)
Fixpoint esc (run : bool) (s : list nat) : list nat :=
  match s with
  | [] => []
  | c :: s' =>
      if c =? LT then c :: esc true s'
      else if run then
        if c =? BS then c :: esc true s'
        else if c =? BAR then BS :: c :: esc false s'
        else c :: esc false s'
      else c :: esc false s'
  end.
Definition escape (s : list nat) : list nat := esc false s.

(* The inverse holds one backslash back until it knows whether '|' follows. *)
Inductive place := Outside | AfterLt | HoldsBackslash.
Fixpoint unesc (p : place) (t : list nat) : option (list nat) :=
  match t with
  | [] => Some (match p with HoldsBackslash => [BS] | _ => [] end)
  | c :: t' =>
      match p with
      | Outside =>
          if c =? LT then option_map (cons c) (unesc AfterLt t')
          else option_map (cons c) (unesc Outside t')
      | AfterLt =>
          if c =? LT then option_map (cons c) (unesc AfterLt t')
          else if c =? BS then unesc HoldsBackslash t'
          else if c =? BAR then None
          else option_map (cons c) (unesc Outside t')
      | HoldsBackslash =>
          if c =? LT then option_map (fun s => BS :: c :: s) (unesc AfterLt t')
          else if c =? BS then option_map (cons c) (unesc HoldsBackslash t')
          else if c =? BAR then option_map (cons c) (unesc Outside t')
          else option_map (fun s => BS :: c :: s) (unesc Outside t')
      end
  end.
Definition unescape (t : list nat) : option (list nat) := unesc Outside t.

Ltac eqb_subst :=
  repeat match goal with
  | H : (_ =? _) = true |- _ => apply Nat.eqb_eq in H; subst
  end.

(** Key idea: unescape holds one backslash back until it knows whether '|' follows; with this, the
    two automata run in step. *)
Lemma unesc_esc s :
  unesc Outside (esc false s) = Some s /\
  unesc AfterLt (esc true s) = Some s /\
  unesc HoldsBackslash (esc true s) = Some (BS :: s).
Proof.
  induction s as [|c s (IH1 & IH2 & IH3)]; [repeat split; reflexivity|].
  cbn [esc]. destruct (c =? LT) eqn:E1.
  - cbn [unesc]. rewrite E1, IH2. repeat split; reflexivity.
  - cbn [unesc]. rewrite E1, IH1. split; [reflexivity|].
    destruct (c =? BS) eqn:E2.
    + cbn [unesc]. rewrite E1, E2, IH3. apply Nat.eqb_eq in E2. subst c. split; reflexivity.
    + destruct (c =? BAR) eqn:E3.
      * cbn [unesc Nat.eqb BS LT]. fold LT BS. rewrite E1, E2, E3, IH1. split; reflexivity.
      * cbn [unesc]. rewrite E1, E2, E3, IH1. split; reflexivity.
Qed.

Lemma esc_unesc t : forall p s, unesc p t = Some s ->
  match p with
  | Outside => esc false s = t
  | AfterLt => esc true s = t
  | HoldsBackslash => esc true s = BS :: t
  end.
Proof.
  induction t as [|c t IH]; intros p s H.
  - cbn [unesc] in H. inversion H; subst. destruct p; reflexivity.
  - cbn [unesc] in H.
    assert (LB : BS =? LT = false) by reflexivity.
    assert (BB : BS =? BS = true) by reflexivity.
    destruct p; destruct (c =? LT) eqn:E1;
      [ | | | destruct (c =? BS) eqn:E2; [|destruct (c =? BAR) eqn:E3; [discriminate|]]
        | | destruct (c =? BS) eqn:E2; [|destruct (c =? BAR) eqn:E3]];
      try (destruct (unesc _ t) as [s'|] eqn:U; [|discriminate]; cbn [option_map] in H;
           inversion H; subst; clear H; apply IH in U; cbn [esc];
           rewrite ?LB, ?BB, ?E1, ?E2, ?E3, ?U; eqb_subst; reflexivity).
Qed.

(** R4. For every byte string, unescape undoes escape. *)
Theorem unescape_escape s : unescape (escape s) = Some s.
Proof. apply unesc_esc. Qed.

(** R4. unescape accepts only what escape writes. *)
Theorem unescape_sound t s : unescape t = Some s -> escape s = t.
Proof. exact (esc_unesc t Outside s). Qed.

(* ------------------------------------------- the image: text without "<|" *)
Definition Mark (t : list nat) : Prop := exists u v, t = u ++ LT :: BAR :: v.

Lemma mark_cons c t : Mark (c :: t) <-> (c = LT /\ exists v, t = BAR :: v) \/ Mark t.
Proof.
  split.
  - intros (u & v & E). destruct u as [|d u]; inversion E; subst.
    + left. eauto.
    + right. exists u, v. reflexivity.
  - intros [[-> (v & ->)] | (u & v & ->)]; [exists [], v | exists (c :: u), v]; reflexivity.
Qed.

Lemma mark_nil : ~ Mark [].
Proof. intros (u & v & E). destruct u; discriminate. Qed.

Lemma esc_no_mark s : forall run,
  ~ Mark (esc run s) /\ (run = true -> forall v, esc run s <> BAR :: v).
Proof.
  induction s as [|c s IH]; intros run.
  - split; [exact mark_nil | intros _ v H; discriminate].
  - cbn [esc]. destruct (IH true) as [M1 B1], (IH false) as [M2 _]. specialize (B1 eq_refl).
    destruct (c =? LT) eqn:E1; [|destruct run; [destruct (c =? BS) eqn:E2;
      [|destruct (c =? BAR) eqn:E3]|]].
    + apply Nat.eqb_eq in E1. subst c. split; [|intros _ v H; discriminate].
      rewrite mark_cons. intros [[_ (v & H)] | H]; [exact (B1 _ H) | exact (M1 H)].
    + apply Nat.eqb_eq in E2. subst c. split; [|intros _ v H; discriminate].
      rewrite mark_cons. intros [[H _] | H]; [discriminate | exact (M1 H)].
    + split; [|intros _ v H; discriminate].
      rewrite mark_cons. intros [[H _] | H]; [discriminate|]. revert H.
      rewrite mark_cons. intros [[H _] | H]; [|exact (M2 H)].
      apply Nat.eqb_neq in E1. contradiction.
    + split.
      * rewrite mark_cons. intros [[H _] | H]; [|exact (M2 H)].
        apply Nat.eqb_neq in E1. contradiction.
      * intros _ v H. inversion H; subst. discriminate.
    + split; [|discriminate].
      rewrite mark_cons. intros [[H _] | H]; [|exact (M2 H)].
      apply Nat.eqb_neq in E1. contradiction.
Qed.

(** R4. No escaped body has the two bytes '<' and '|' side by side. *)
Theorem escape_no_mark s : ~ Mark (escape s).
Proof. apply esc_no_mark. Qed.

Lemma unesc_none t : forall p, unesc p t = None ->
  Mark t \/ (p = AfterLt /\ exists v, t = BAR :: v).
Proof.
  assert (O : forall A B (f : A -> B) x, option_map f x = None -> x = None)
    by (intros A B f [x|] H; [discriminate | reflexivity]).
  induction t as [|c t IH]; intros p H; [discriminate|]. cbn [unesc] in H. rewrite mark_cons.
  assert (K : forall q, unesc q t = None -> q <> AfterLt -> Mark t).
  { intros q U N. destruct (IH q U) as [M | [E _]]; [exact M | contradiction]. }
  assert (L : c = LT -> unesc AfterLt t = None ->
              (c = LT /\ exists v, t = BAR :: v) \/ Mark t).
  { intros -> U. destruct (IH _ U) as [M | [_ B]]; auto. }
  destruct p; destruct (c =? LT) eqn:E1; try (apply O in H);
    try (apply Nat.eqb_eq in E1; left; apply L; assumption).
  - left. right. apply (K _ H). discriminate.
  - destruct (c =? BS) eqn:E2.
    + left. right. apply (K _ H). discriminate.
    + destruct (c =? BAR) eqn:E3.
      * right. apply Nat.eqb_eq in E3. subst c. split; [reflexivity | eauto].
      * apply O in H. left. right. apply (K _ H). discriminate.
  - left. right. destruct (c =? BS); [|destruct (c =? BAR)]; apply O in H;
      apply (K _ H); discriminate.
Qed.

(** R4. For every byte string without '<' and '|' side by side there is exactly one body that
    escapes to it: with unescape_escape and escape_no_mark, escape is a bijection onto these
    strings. *)
Theorem escape_onto t : ~ Mark t -> exists! s, escape s = t.
Proof.
  intros N. unfold unescape. destruct (unesc Outside t) as [s|] eqn:U.
  - exists s. split; [apply unescape_sound; exact U|].
    intros s' E. subst t. fold (unescape (escape s')) in U. rewrite unescape_escape in U. congruence.
  - exfalso. destruct (unesc_none _ _ U) as [M | [E _]]; [exact (N M) | discriminate].
Qed.

(* what the escape changes, and that all else stays *)
Lemma esc_split a : forall run b, esc run (a ++ LT :: b) = esc run a ++ LT :: esc true b.
Proof.
  induction a as [|c a IH]; intros run b; [reflexivity|]. cbn [app esc].
  destruct (c =? LT); [now rewrite IH|]. destruct run; [|now rewrite IH].
  destruct (c =? BS); [now rewrite IH|]. destruct (c =? BAR); now rewrite IH.
Qed.

Lemma esc_run k v : esc true (repeat BS k ++ BAR :: v) = repeat BS (S k) ++ BAR :: esc false v.
Proof.
  induction k as [|k IH]; [reflexivity|].
  change (repeat BS (S k) ++ BAR :: v) with (BS :: (repeat BS k ++ BAR :: v)).
  change (esc true (BS :: (repeat BS k ++ BAR :: v))) with
    (BS :: esc true (repeat BS k ++ BAR :: v)).
  rewrite IH. reflexivity.
Qed.

(** R4. Every '<', k backslashes, '|' becomes '<', k + 1 backslashes, '|', and the texts on both
    sides are escaped apart. *)
Theorem escape_adds_one u k v :
  escape (u ++ LT :: repeat BS k ++ BAR :: v) =
  escape u ++ LT :: repeat BS (S k) ++ BAR :: escape v.
Proof. unfold escape. now rewrite esc_split, esc_run. Qed.

Definition Run (s : list nat) : Prop := exists u k v, s = u ++ LT :: repeat BS k ++ BAR :: v.

Lemma esc_unchanged s : forall run, ~ Run s ->
  (run = true -> ~ exists k v, s = repeat BS k ++ BAR :: v) -> esc run s = s.
Proof.
  induction s as [|c s IH]; intros run N B; [reflexivity|]. cbn [esc].
  assert (N' : ~ Run s).
  { intros (u & k & v & E). apply N. exists (c :: u), k, v. subst s. reflexivity. }
  destruct (c =? LT) eqn:E1.
  - apply Nat.eqb_eq in E1. subst c. f_equal. apply IH; [exact N'|]. intros _ (k & v & E).
    apply N. exists [], k, v. subst s. reflexivity.
  - destruct run.
    + destruct (c =? BS) eqn:E2.
      * apply Nat.eqb_eq in E2. subst c. f_equal. apply IH; [exact N'|]. intros _ (k & v & E).
        apply (B eq_refl). exists (S k), v. subst s. reflexivity.
      * destruct (c =? BAR) eqn:E3.
        { apply Nat.eqb_eq in E3. subst c. exfalso. apply (B eq_refl). exists 0, s. reflexivity. }
        f_equal. apply IH; [exact N' | discriminate].
    + f_equal. apply IH; [exact N' | discriminate].
Qed.

(** R4. A body without such a run stays as it is. *)
Theorem escape_unchanged s : ~ Run s -> escape s = s.
Proof. intros N. apply esc_unchanged; [exact N | discriminate]. Qed.

(* ------------------------------------ delimiters stay outside of the bodies *)
Lemma no_mark_before b : forall u x y, ~ Mark b ->
  b ++ LT :: x = u ++ LT :: BAR :: y -> length b <= length u.
Proof.
  induction b as [|c b IH]; intros u x y N E; [simpl; lia|].
  destruct u as [|d u]; cbn [app] in E; inversion E; subst.
  - exfalso. destruct b as [|e b].
    + cbn [app] in H1. inversion H1.
    + cbn [app] in H1. inversion H1; subst. apply N. exists [], b. reflexivity.
  - cbn [length]. apply le_n_S. apply (IH u x y); [|assumption].
    intros M. apply N. apply mark_cons. now right.
Qed.

(** R4. Where '<' follows an escaped body, as the end delimiter does, no delimiter starts inside the
    body, not even when the body ends in '<'. *)
Theorem no_delimiter_in_body c d rest u v : d = IM_START \/ d = IM_END ->
  escape c ++ LT :: rest = u ++ d ++ v -> length (escape c) <= length u.
Proof.
  intros [-> | ->] E.
  - apply (no_mark_before _ u rest (skipn 2 IM_START ++ v) (escape_no_mark c)). exact E.
  - apply (no_mark_before _ u rest (skipn 2 IM_END ++ v) (escape_no_mark c)). exact E.
Qed.

(* ----------------------------------------------------------- render, parse *)
Definition header (r : role) : list nat := IM_START ++ role_name r ++ [NL].
Definition render1 (m : message) : list nat := header (mrole m) ++ escape (content m) ++ MESSAGE_END.
Definition render (ms : list message) : list nat := flat_map render1 ms.

Fixpoint strip (p s : list nat) : option (list nat) :=
  match p, s with
  | [], _ => Some s
  | a :: p', b :: s' => if a =? b then strip p' s' else None
  | _ :: _, [] => None
  end.

Definition starts_bar (s : list nat) : bool :=
  match s with c :: _ => c =? BAR | [] => false end.

(* cut the text in front of its first "<|" *)
Fixpoint break_mark (s : list nat) : option (list nat * list nat) :=
  match s with
  | [] => None
  | c :: s' => if (c =? LT) && starts_bar s' then Some ([], s)
               else match break_mark s' with
                    | None => None
                    | Some (b, r) => Some (c :: b, r)
                    end
  end.

Definition parse_body (s : list nat) : option (list nat * list nat) :=
  match break_mark s with
  | None => None
  | Some (b, r) => match unescape b with None => None | Some c => Some (c, r) end
  end.

Definition parse_role (s : list nat) : option (role * list nat) :=
  match strip (role_name System ++ [NL]) s with Some r => Some (System, r) | None =>
  match strip (role_name User ++ [NL]) s with Some r => Some (User, r) | None =>
  match strip (role_name Assistant ++ [NL]) s with Some r => Some (Assistant, r) | None =>
  match strip (role_name Tool ++ [NL]) s with Some r => Some (Tool, r) | None => None
  end end end end.

Definition parse1 (s : list nat) : option (message * list nat) :=
  match strip IM_START s with None => None | Some s1 =>
  match parse_role s1 with None => None | Some (r, s2) =>
  match parse_body s2 with None => None | Some (c, s3) =>
  match strip MESSAGE_END s3 with None => None | Some s4 => Some (Msg r c, s4)
  end end end end.

Fixpoint parse_fuel (n : nat) (s : list nat) : option (list message) :=
  match s with
  | [] => Some []
  | _ => match n with
         | 0 => None
         | S n' => match parse1 s with
                   | None => None
                   | Some (m, rest) => match parse_fuel n' rest with
                                       | None => None
                                       | Some ms => Some (m :: ms)
                                       end
                   end
         end
  end.
Definition parse (s : list nat) : option (list message) := parse_fuel (length s) s.

Lemma strip_app p s : strip p (p ++ s) = Some s.
Proof. induction p as [|a p IH]; simpl; [reflexivity|]. now rewrite Nat.eqb_refl. Qed.

Lemma strip_sound p : forall s r, strip p s = Some r -> s = p ++ r.
Proof.
  induction p as [|a p IH]; intros s r H; simpl in H; [now inversion H|].
  destruct s as [|b s]; [discriminate|]. destruct (a =? b) eqn:E; [|discriminate].
  apply Nat.eqb_eq in E. subst. simpl. f_equal. auto.
Qed.

Lemma break_mark_app b r : ~ Mark b ->
  break_mark (b ++ LT :: BAR :: r) = Some (b, LT :: BAR :: r).
Proof.
  induction b as [|c b IH]; intros N; [reflexivity|]. cbn [app break_mark].
  assert (N' : ~ Mark b) by (intros M; apply N; apply mark_cons; now right).
  rewrite (IH N'). destruct ((c =? LT) && starts_bar (b ++ LT :: BAR :: r)) eqn:E; [|reflexivity].
  exfalso. apply andb_prop in E as [E1 E2]. apply Nat.eqb_eq in E1. subst c.
  destruct b as [|d b]; cbn [app starts_bar] in E2; [discriminate|].
  apply Nat.eqb_eq in E2. subst d. apply N. exists [], b. reflexivity.
Qed.

Lemma break_mark_some s : forall b r, break_mark s = Some (b, r) ->
  s = b ++ r /\ exists v, r = LT :: BAR :: v.
Proof.
  induction s as [|c s IH]; intros b r H; [discriminate|]. cbn [break_mark] in H.
  destruct ((c =? LT) && starts_bar s) eqn:E.
  - inversion H; subst. apply andb_prop in E as [E1 E2]. apply Nat.eqb_eq in E1. subst c.
    split; [reflexivity|]. destruct s as [|d s]; [discriminate|].
    cbn [starts_bar] in E2. apply Nat.eqb_eq in E2. subst d. eauto.
  - destruct (break_mark s) as [[b' r']|]; [|discriminate]. inversion H; subst.
    destruct (IH _ _ eq_refl) as [-> V]. split; [reflexivity | exact V].
Qed.

Lemma parse_body_app c r : parse_body (escape c ++ LT :: BAR :: r) = Some (c, LT :: BAR :: r).
Proof.
  unfold parse_body. rewrite break_mark_app by apply escape_no_mark.
  now rewrite unescape_escape.
Qed.

Lemma parse_body_sound s c r : parse_body s = Some (c, r) -> s = escape c ++ r.
Proof.
  unfold parse_body. destruct (break_mark s) as [[b r']|] eqn:B; [|discriminate].
  destruct (unescape b) as [c'|] eqn:U; [|discriminate]. intros H. inversion H; subst.
  apply unescape_sound in U. subst b. now apply break_mark_some in B as [-> _].
Qed.

Lemma parse_role_app r s : parse_role (role_name r ++ [NL] ++ s) = Some (r, s).
Proof. destruct r; reflexivity. Qed.

Lemma parse_role_sound s r t : parse_role s = Some (r, t) -> s = role_name r ++ [NL] ++ t.
Proof.
  unfold parse_role. intros H.
  destruct (strip (role_name System ++ [NL]) s) eqn:A.
  { inversion H; subst. apply strip_sound in A. now rewrite <- app_assoc in A. }
  destruct (strip (role_name User ++ [NL]) s) eqn:B.
  { inversion H; subst. apply strip_sound in B. now rewrite <- app_assoc in B. }
  destruct (strip (role_name Assistant ++ [NL]) s) eqn:C.
  { inversion H; subst. apply strip_sound in C. now rewrite <- app_assoc in C. }
  destruct (strip (role_name Tool ++ [NL]) s) eqn:D; [|discriminate].
  inversion H; subst. apply strip_sound in D. now rewrite <- app_assoc in D.
Qed.

Lemma parse1_render1 m s : parse1 (render1 m ++ s) = Some (m, s).
Proof.
  destruct m as [r c]. unfold parse1, render1, header. cbn [mrole content].
  rewrite <- !app_assoc. rewrite strip_app, parse_role_app.
  change (MESSAGE_END ++ s) with (LT :: BAR :: (skipn 2 MESSAGE_END ++ s)).
  rewrite parse_body_app.
  change (LT :: BAR :: (skipn 2 MESSAGE_END ++ s)) with (MESSAGE_END ++ s).
  rewrite strip_app. reflexivity.
Qed.

Lemma parse1_sound s m t : parse1 s = Some (m, t) -> s = render1 m ++ t.
Proof.
  unfold parse1. intros H.
  destruct (strip IM_START s) as [s1|] eqn:A; [|discriminate].
  destruct (parse_role s1) as [[r s2]|] eqn:B; [|discriminate].
  destruct (parse_body s2) as [[c s3]|] eqn:C; [|discriminate].
  destruct (strip MESSAGE_END s3) as [s4|] eqn:D; [|discriminate].
  inversion H; subst. apply strip_sound in A, D. apply parse_role_sound in B.
  apply parse_body_sound in C. subst.
  unfold render1, header. cbn [mrole content]. now rewrite <- !app_assoc.
Qed.

Lemma render1_length m : 1 <= length (render1 m).
Proof. unfold render1, header, IM_START. simpl. lia. Qed.

Lemma parse_fuel_render ms : forall n, length (render ms) <= n ->
  parse_fuel n (render ms) = Some ms.
Proof.
  induction ms as [|m ms IH]; intros n L; [now destruct n|].
  change (render (m :: ms)) with (render1 m ++ render ms) in *.
  rewrite app_length in L. pose proof (render1_length m).
  destruct n as [|n]; [lia|].
  destruct (render1 m ++ render ms) as [|x xs] eqn:E.
  - apply (f_equal (@length nat)) in E. rewrite app_length in E. simpl in E. lia.
  - cbn [parse_fuel]. rewrite <- E. rewrite parse1_render1, IH by lia. reflexivity.
Qed.

(** R1. For every conversation, whatever the bytes of its bodies, parsing what was rendered gives
    the same messages. *)
Theorem parse_render ms : parse (render ms) = Some ms.
Proof. apply parse_fuel_render. lia. Qed.

(** R3. Whatever parse accepts is what render writes for the messages that parse returns. *)
Theorem parse_sound s ms : parse s = Some ms -> render ms = s.
Proof.
  unfold parse. generalize (length s) as n. intros n. revert s ms.
  induction n as [|n IH]; intros s ms H.
  - destruct s; [now inversion H | discriminate].
  - destruct s as [|x xs]; [now inversion H|]. cbn [parse_fuel] in H.
    destruct (parse1 (x :: xs)) as [[m rest]|] eqn:P; [|discriminate].
    destruct (parse_fuel n rest) as [ms'|] eqn:Q; [|discriminate]. inversion H; subst.
    apply parse1_sound in P. rewrite P. change (render (m :: ms')) with (render1 m ++ render ms').
    now rewrite (IH _ _ Q).
Qed.

(** R2. The empty conversation is rendered to nothing. *)
Theorem render_empty : render [] = [].
Proof. reflexivity. Qed.

(** R2. Rendering a conversation with one more message appends the bytes of that message, which
    depend on nothing else. *)
Theorem render_append h m : render (h ++ [m]) = render h ++ render1 m.
Proof. unfold render. rewrite flat_map_app. simpl. now rewrite app_nil_r. Qed.

(** R6. Inserting a message into a conversation inserts exactly its bytes. *)
Theorem render_insert a m b : render (a ++ m :: b) = render a ++ render1 m ++ render b.
Proof. unfold render. now rewrite flat_map_app. Qed.

(** R5. One rendered conversation is a prefix of another iff the one conversation is a prefix of the
    other. *)
Theorem render_prefix_iff h h' :
  (exists x, render h' = render h ++ x) <-> (exists k, h' = h ++ k).
Proof.
  split.
  - revert h'. induction h as [|m h IH]; intros h' (x & E); [exists h'; reflexivity|].
    change (render (m :: h)) with (render1 m ++ render h) in E. rewrite <- app_assoc in E.
    destruct h' as [|m' h'].
    + exfalso. apply (f_equal (@length nat)) in E. rewrite app_length in E.
      pose proof (render1_length m). simpl in E. lia.
    + change (render (m' :: h')) with (render1 m' ++ render h') in E.
      pose proof (parse1_render1 m' (render h')) as P. rewrite E, parse1_render1 in P.
      inversion P; subst. destruct (IH h') as (k & ->); [eauto|]. exists k. reflexivity.
  - intros (k & ->). exists (render k). unfold render. apply flat_map_app.
Qed.

(* ------------------------------------------------------- bytes stay bytes *)
Ltac bytes := unfold LT, BS, BAR, NL; repeat (apply Forall_cons; [lia|]); apply Forall_nil.

Lemma bytes_esc c : Bytes c -> forall run, Bytes (esc run c).
Proof.
  unfold Bytes. induction 1 as [|a c H _ IH]; intros run; [apply Forall_nil|]. cbn [esc].
  destruct (a =? LT); [now constructor|]. destruct run; [|now constructor].
  destruct (a =? BS); [now constructor|]. destruct (a =? BAR); [|now constructor].
  constructor; [unfold BS; lia | now constructor].
Qed.

Lemma bytes_header r : Bytes (header r).
Proof.
  unfold header, Bytes. apply Forall_app; split; [unfold IM_START; bytes|].
  apply Forall_app; split; [destruct r; unfold role_name; bytes | bytes].
Qed.

Lemma bytes_message_end : Bytes MESSAGE_END.
Proof. unfold MESSAGE_END, IM_END, Bytes. cbn [app]. bytes. Qed.

Lemma bytes_render1 m : Bytes (content m) -> Bytes (render1 m).
Proof.
  intros H. unfold render1, Bytes.
  apply Forall_app; split; [apply bytes_header|].
  apply Forall_app; split; [apply bytes_esc; exact H | apply bytes_message_end].
Qed.
