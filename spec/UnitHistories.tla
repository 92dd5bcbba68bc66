---------------------------- MODULE UnitHistories ----------------------------
(***************************************************************************)
(* Whether the code does what UnitTables says.  The simulated world of     *)
(* units records what each request of the code states, finds and leaves in *)
(* its tables (tests/property/specs).  Each of these steps has to be one   *)
(* of the specification.                                                   *)
(***************************************************************************)
EXTENDS UnitTables

VARIABLE step  \* what was recorded
vars == <<step, stored>>

r == step.request
StatesTheSame == step.requires = Requires(r)
AllowsTheSame == step.isApplied = (Allows(r) /\ step.othersAllow)
LeavesTheSame ==
  IF step.isApplied
  THEN /\ \A k \in DOMAIN item : step.left.item[k] = NewItem(k, r)
       /\ step.left.head[r.unit] = NewHead(r)
       /\ step.left.saved = NewSaved(r) /\ step.left.receipt = NewReceipt(r) /\ step.left.row = NewRow(r)
  ELSE step.left = step.found

Found ==
  /\ item = step.found.item /\ head = step.found.head /\ saved = step.found.saved
  /\ receipt = step.found.receipt /\ row = step.found.row
=============================================================================
