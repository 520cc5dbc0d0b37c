"""Receipts of loads: small files that say which files of a load were appended to the log.

A load writes its files before it is decided, so a file alone does not say whether its messages are in the log. The
program that loads writes a receipt after the decision, and before it reports success. Only a restore reads receipts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakelog.objectstore import ObjectStore
from lakelog.segments.layout import is_receipt, receipt_path


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReceipt:
    """The part of a load in one partition, which was appended to the log.

    Attributes:
        name: The name of the load.
        partition: The partition.
        first: The offset of the first message.
        end: The offset after the last message.
        fingerprint: The hash of the input of this part.
        paths: The files with its messages.
    """

    name: str
    partition: int
    first: int
    end: int
    fingerprint: str
    paths: tuple[str, ...]


def write_receipt(store: ObjectStore, folder: str, receipt: LoadReceipt) -> None:
    """Store the receipt of a load into the topic with this folder."""
    store.put(receipt_path(folder, receipt.partition), json.dumps(asdict(receipt)).encode())


def read_receipts(store: ObjectStore, folder: str) -> list[LoadReceipt]:
    """Return all receipts of the topic with this folder."""
    found = [json.loads(store.get(each.path)) for each in store.list(f"{folder}/loads") if is_receipt(each.path)]
    return [LoadReceipt(**{**each, "paths": tuple(each["paths"])}) for each in found]
