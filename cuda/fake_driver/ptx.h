// PTX as the interpreter takes it.
//
// Source of all that is said of PTX here: "Parallel Thread Execution ISA",
// https://docs.nvidia.com/cuda/parallel-thread-execution/
#ifndef RINGPIPE_CUDA_FAKE_DRIVER_PTX_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_PTX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fake_cuda {

enum class Type {
  kPredicate,
  kU8,
  kS8,
  kU16,
  kS16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF32,
  kF64,
};

std::size_t SizeOf(Type type);

enum class Op {
  kAdd,
  kSubtract,
  kMultiplyLow,
  kMultiplyWide,
  kDivide,
  kRemainder,
  kMinimum,
  kMaximum,
  kNegate,
  kAnd,
  kOr,
  kXor,
  kNot,
  kShiftLeft,
  kShiftRight,
  kBitFieldExtract,
  kCompare,
  kSelect,
  kMove,
  kConvert,
  kLoad,
  kLoadParameter,
  kStore,
  kBranch,
  kReturn,
};

// Of setp. The unordered ones are true where an operand is NaN.
enum class Compare {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kEqualUnordered,
  kNotEqualUnordered,
  kLessUnordered,
  kLessOrEqualUnordered,
  kGreaterUnordered,
  kGreaterOrEqualUnordered,
  kAreNumbers,
  kIsNan,
};

// Registers, constants and special registers are rows: a row has a 64-bit value
// for each thread of a block.
struct Instruction {
  Op op = Op::kReturn;
  Type type = Type::kU64;
  Type from = Type::kU64;  // of a conversion
  Compare compare = Compare::kEqual;
  int guard = -1;  // the row of a predicate; -1: none
  bool negated = false;
  int width = 1;              // of a load or store: 1, 2 or 4
  std::vector<int> results;   // rows
  std::vector<int> operands;  // rows; of a store: the address first
  std::int64_t offset = 0;    // of an address
  std::size_t target = 0;     // of a branch
  std::string text;           // for messages
};

struct Kernel {
  struct Parameter {
    std::size_t offset;
    std::size_t bytes;
  };
  enum Special { kThread, kBlockSize, kBlock, kGridSize, kSpecials };

  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  int rows = 0;
  std::vector<std::pair<int, std::uint64_t>> constants;  // row and value
  int special[kSpecials] = {-1, -1, -1, -1};             // rows; -1: not used
  std::vector<Instruction> code;
};

// What the parser or the interpreter does not know. Never skipped.
class UnknownPtx : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The kernels of a module by name. Throws UnknownPtx.
std::map<std::string, Kernel> ParsePtx(const std::string& text);

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_PTX_H_
