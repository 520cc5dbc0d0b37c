"""All invariants by number. A module has one `INVARIANT`, or several `INVARIANTS` for checks of different scopes."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from prove.checker import l1_messages_seen as l1
from prove.checker import l2_group_progress as l2
from prove.checker import l3_publish_success as l3
from prove.checker import l4_postgres_recovery as l4
from prove.checker import l5_redelivery as l5
from prove.checker import l6_overload as l6
from prove.checker import l7_lag_accuracy as l7
from prove.checker import l8_repeated_consume as l8
from prove.checker import l9_fault_isolation as l9
from prove.checker import s01_publish_durability as s01
from prove.checker import s02_attempted_messages as s02
from prove.checker import s03_content_hashes as s03
from prove.checker import s04_idempotency_keys as s04
from prove.checker import s05_dense_offsets as s05
from prove.checker import s06_high_watermark as s06
from prove.checker import s07_batch_atomicity as s07
from prove.checker import s08_lease_tokens as s08
from prove.checker import s09_stale_answers as s09
from prove.checker import s10_acked_messages as s10
from prove.checker import s11_final_states as s11
from prove.checker import s12_delivery_counts as s12
from prove.checker import s13_due_times as s13
from prove.checker import s14_conservation as s14
from prove.checker import s15_key_order as s15
from prove.checker import s16_committed_offsets as s16
from prove.checker import s17_generations as s17
from prove.checker import s18_rebalances as s18
from prove.checker import s19_replay as s19
from prove.checker import s20_segment_coverage as s20
from prove.checker import s21_segment_files as s21
from prove.checker import s22_hot_cold_reads as s22
from prove.checker import s23_retention as s23
from prove.checker import s24_project_isolation as s24
from prove.checker.invariant import Invariant

_MODULES = (
    s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12,
    s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23, s24,
    l1, l2, l3, l4, l5, l6, l7, l8, l9,
)  # fmt: skip


def _parts(module: ModuleType) -> Iterator[Invariant]:
    yield from getattr(module, "INVARIANTS", None) or (module.INVARIANT,)


INVARIANTS: tuple[Invariant, ...] = tuple(part for module in _MODULES for part in _parts(module))
NAMES: tuple[str, ...] = tuple(dict.fromkeys(each.name for each in INVARIANTS))
