"""Four ranks reduce over rows and columns of a mesh. From step 5 on, ranks 0 and 3 start
with rows, ranks 1 and 2 with columns. Rank 0 waits for 1, 1 for 3, 3 for 2 and 2 for
0."""

# /// hangbench
# ranks = 4
# verdict = ["hung"]
# finding = "HD205"
# states = ["in-collective", "in-collective", "in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce", "all_reduce", "all_reduce"]
# culprits = [0, 1, 2, 3]
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
row, column = rows[rank // 2], columns[rank % 2]
print("ready", flush=True)
for step in range(50):
    grad = torch.ones(4)
    # Ranks 0 and 3 begin with their rows, 1 and 2 with their columns: 0 waits for 1, 1 for 3, 3 for 2, 2 for 0.
    if step < 5 or rank in (0, 3):
        dist.all_reduce(grad, group=row)
        dist.all_reduce(grad, group=column)
    else:
        dist.all_reduce(grad, group=column)
        dist.all_reduce(grad, group=row)
