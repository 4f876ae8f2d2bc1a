#include "docs/interface_page.h"

#include <cctype>
#include <string_view>

#include "pipeline/collective.h"
#include "reduction/data_type.h"

namespace ringpipe {
namespace {

constexpr std::string_view kIntroduction =
    R"(<!-- Made from the table of collectives; do not edit. To make it anew:
bazel run //docs:interface > docs/interface.md -->

# The calls

Every call is one value: `Call` in C++ ([call.h](../engine/call.h)), `ringpipe_call` in C
([ringpipe.h](../engine/ringpipe.h)). `Run` (`ringpipe_run`) makes it and returns when it has ended; `Start`
(`ringpipe_start`) returns at once, with a request to wait for. Each collective has functions of its own besides, which
do no more than fill in that value. What a program may rely on is in [semantics.md](semantics.md).

In C++:

```cpp
#include <ringpipe/communicator.h>

ringpipe::Status SumOnRankZero(ringpipe::Communicator& communicator, const float* send, float* receive,
                               std::size_t count) {
  return communicator.Run({.collective = ringpipe::Collective::kReduce,
                           .send = send,
                           .receive = receive,
                           .count = count,
                           .type = ringpipe::DataType::kFloat32,
                           .root = 0});
}
```

In C, where every member that is not named is 0 and means the default:

```c
#include <ringpipe/ringpipe.h>

ringpipe_status sum_on_rank_zero(ringpipe_communicator* communicator, const float* send, float* receive,
                                 size_t count) {
  const ringpipe_call call = {.struct_size = sizeof call,
                              .collective = RINGPIPE_REDUCE,
                              .send = send,
                              .receive = receive,
                              .count = count,
                              .data_type = RINGPIPE_FLOAT32};
  return ringpipe_run(communicator, &call);
}
```

Instead of a buffer a call takes a list of them, in C++ `send_list` and `receive_list`, whose pieces together have the
elements of the buffer: the gradients of many layers are one message. Ranks need not cut it alike, one side may be a
list and the other a buffer, and lists may be in place: each element where it is in the other list. The list is copied
when the call starts; the pieces are the call's until it ends.

```cpp
ringpipe::Status SumOfGradients(ringpipe::Communicator& communicator, std::vector<std::vector<float>>& gradients) {
  std::vector<ringpipe::Buffer> list;
  std::size_t count = 0;
  for (std::vector<float>& gradient : gradients) {
    list.push_back({gradient.data(), gradient.size()});
    count += gradient.size();
  }
  return communicator.Run({.collective = ringpipe::Collective::kAllReduce,
                           .count = count,
                           .type = ringpipe::DataType::kFloat32,
                           .send_list = list,
                           .receive_list = list});
}
```

Where each part of a message is one rank's (reduce-scatter, all-gather, gather, scatter), parts may be of different
lengths, or empty: `counts`, an element for each rank, the same on all ranks, instead of `count`. In C++ these calls
have names as well: `ReduceScatterV`, `AllGatherV`, `GatherV`, `ScatterV` (MPI's `MPI_Reduce_scatter`,
`MPI_Allgatherv`, ...; what MPI does by displacements, a list does). In an all-to-all each pair of ranks may have a
length of its own: `counts` are what this rank has for each, `receive_counts` what it gets from each (`AllToAllV`,
`MPI_Alltoallv`). The ranks compare these first, in a short call.

Reductions of floating-point types may be scaled: `prescale` multiplies this rank's input before (each rank's own, such
as its part of all samples), `postscale` the result after (the same on all ranks).

```cpp
ringpipe::Status WeightedAverage(ringpipe::Communicator& communicator, float* gradient, std::size_t count,
                                 double my_samples, double all_samples) {
  return communicator.Run({.collective = ringpipe::Collective::kAllReduce,
                           .send = gradient,
                           .receive = gradient,
                           .count = count,
                           .type = ringpipe::DataType::kFloat32,
                           .prescale = my_samples / all_samples});
}
```

Only the C interface is stable: a program that was compiled with an older header works with a newer library, and with
an older library as long as it uses nothing that this one lacks. The C++ interface may change with every version.

)";

constexpr std::string_view kWhatIsMissing =
    R"(## What others have

MPI and NCCL have these; ringpipe has not:

- **Operations of the user's own** (`MPI_Op_create`). The five above are all; NCCL's `ncclRedOpCreatePreMulSum` is a
  sum with `prescale`.
- **Derived types** (`MPI_Type_vector`). Elements lie side by side.
- **Complex types**, and logical ones as such.
- **Messages between two ranks** with tags and from any source (`MPI_Recv`, `MPI_ANY_SOURCE`). `SendReceive` is a call
  that every rank makes, and C++'s alone.
- **Prefix sums** (`MPI_Scan`), **collectives of neighbours**, one-sided access (`MPI_Put`), files.
- **Sub-communicators** (`MPI_Comm_split`, `ncclCommSplit`). Give each group of ranks a job of its own
  (`CommunicatorOptions::job_id`, and ranks from 0).
- **Calls in a stream** (NCCL's argument `stream`). A call can begin after the work of a CUDA stream (`Call::stream`); its
  result is waited for on the host, not by the stream.
)";

// "AllReduce" of "all_reduce".
std::string InWords(std::string_view function) {
  std::string name;
  bool capital = true;
  for (const char c : function) {
    if (c != '_') {
      name += static_cast<char>(
          capital ? std::toupper(static_cast<unsigned char>(c)) : c);
    }
    capital = c == '_';
  }
  return name;
}

// How many elements a buffer has.
std::string Elements(const CollectiveInfo& info, Holds holds) {
  switch (holds) {
    case Holds::kNothing:
      return "–";
    case Holds::kOwnPart:
      return "count";
    case Holds::kWhole:
      return info.has_parts ? "size × count" : "count";
  }
  return "";
}

std::string BothElements(const CollectiveInfo& info,
                         Holds CollectiveInfo::Buffers::*buffer) {
  const std::string root = Elements(info, info.root.*buffer);
  const std::string others = Elements(info, info.others.*buffer);
  return root == others ? root : root + " (root), " + others;
}

std::string InPlace(const CollectiveInfo& info) {
  if (!info.in_place) {
    return "no";
  }
  const auto [input, output] = info.root;
  const char* const where = input == output ? "send = receive"
                            : input == Holds::kWhole
                                ? "receive = send + rank × count"
                                : "send = receive + rank × count";
  return std::string(where) + (info.is_rooted() ? " (root)" : "");
}

std::string CallsTable() {
  std::string table =
      "## Collectives\n\nSizes are in elements; `size` is the number of ranks. "
      "A buffer of size × count elements has rank r's part from r × count "
      "on. Where the root is not like the others, its buffer is named first; "
      "–: it is neither read nor written and may be null.\n\n"
      "| | C++ | C | send | receive | operation | in place | MPI | NCCL |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const CollectiveInfo& info : kCollectiveTable) {
    const bool is_barrier = &info == &InfoOf(Collective::kBarrier);
    const bool in_c = &info != &InfoOf(Collective::kSendReceive);
    table +=
        std::string("| ") + info.name + " | `" + InWords(info.function) +
        (in_c ? "`, `" + InWords(info.function) + "Async`" : "`") + " | " +
        (in_c ? "`ringpipe_" + std::string(info.function) + "`" : "–") + " | " +
        (is_barrier ? "–"
                    : BothElements(info, &CollectiveInfo::Buffers::input)) +
        " | " +
        (is_barrier ? "–"
                    : BothElements(info, &CollectiveInfo::Buffers::output)) +
        " | " + (info.reduces ? "yes" : "–") + " | " +
        (is_barrier ? "–" : InPlace(info)) + " | " + info.mpi + " | " +
        (info.nccl == nullptr ? "–" : info.nccl) + " |\n";
  }
  return table + "\n";
}

std::string TypesTable() {
  struct Names {
    DataType type;
    const char* mpi;
    const char* nccl;
  };
  constexpr Names kNames[] = {{DataType::kFloat32, "MPI_FLOAT", "ncclFloat32"},
                              {DataType::kFloat64, "MPI_DOUBLE", "ncclFloat64"},
                              {DataType::kInt32, "MPI_INT32_T", "ncclInt32"},
                              {DataType::kInt64, "MPI_INT64_T", "ncclInt64"},
                              {DataType::kInt8, "MPI_INT8_T", "ncclInt8"},
                              {DataType::kUint8, "MPI_UINT8_T", "ncclUint8"},
                              {DataType::kUint32, "MPI_UINT32_T", "ncclUint32"},
                              {DataType::kUint64, "MPI_UINT64_T", "ncclUint64"},
                              {DataType::kFloat16, "–", "ncclFloat16"},
                              {DataType::kBfloat16, "–", "ncclBfloat16"}};
  static_assert(std::size(kNames) == kDataTypes.size());
  std::string table =
      "## Types and operations\n\n| type | C | bytes | MPI | NCCL |\n"
      "| --- | --- | --- | --- | --- |\n";
  const auto constant = [](std::string_view name) {
    std::string text = "RINGPIPE_";
    for (const char c : name) {
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return text;
  };
  for (const Names& names : kNames) {
    table += "| " + std::string(Name(names.type)) + " | `" +
             constant(Name(names.type)) + "` | " +
             std::to_string(SizeOf(names.type)) + " | " + names.mpi + " | " +
             names.nccl + " |\n";
  }
  table += "\nOperations:";
  for (const ReduceOp op : kReduceOps) {
    table += std::string(op == kReduceOps.front() ? " " : ", ") +
             std::string(Name(op)) + " (`" + constant(Name(op)) + "`)";
  }
  return table +
         ". All types have all of them; [semantics.md](semantics.md#numbers) "
         "says how they round and wrap. A logical value is uint8 with max "
         "(or) and min (and).\n\n";
}

}  // namespace

std::string InterfacePage() {
  return std::string(kIntroduction) + CallsTable() + TypesTable() +
         std::string(kWhatIsMissing);
}

}  // namespace ringpipe
