"""Each rank counts the records of a dataset for itself, without a process group. One of the files is a FIFO that nobody
writes to."""

# /// hangbench
# ranks = 2
# verdict = ["hung"]
# finding = "HD103"
# culprits = [0, 1]
# victims = []
# ///

import contextlib
import os

from torch.utils.data import DataLoader, Dataset

paths = [f"part{n}" for n in range(6)]
for path in paths[:-1]:
    with open(path, "a") as file:
        file.write("record\n" * 100)
with contextlib.suppress(FileExistsError):  # of the other rank
    os.mkfifo(paths[-1])


class Records(Dataset):
    def __len__(self):
        return len(paths)

    def __getitem__(self, at):
        with open(paths[at]) as file:
            return len(file.readlines())


def main():
    print("ready", flush=True)
    total = 0
    for counts in DataLoader(Records(), batch_size=1, num_workers=2):
        total += int(counts.sum())
    print(total)


main()
