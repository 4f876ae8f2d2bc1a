#include "cuda/fake_driver/interpreter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

namespace fake_cuda {
namespace {

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

template <typename T>
T FromRow(std::uint64_t row) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(row));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(row);
  } else {
    return static_cast<T>(row);
  }
}

template <typename T>
std::uint64_t ToRow(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  }
}

// "NaN payloads are not preserved: single-precision instructions generate the
// canonical NaN 0x7fffffff" (PTX ISA, floating point instructions). Of doubles
// it says that payloads may be kept.
template <typename T>
T Canonical(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value == value ? value : std::bit_cast<float>(0x7fffffffu);
  } else {
    return value;
  }
}

[[noreturn]] void Unknown(const Instruction& instruction) {
  throw UnknownPtx("the interpreter does not know: " + instruction.text);
}

// Calls function.operator()<T>() for the type's T.
template <typename Function>
void WithType(Type type, const Instruction& instruction, Function function) {
  switch (type) {
    case Type::kU8:
      return function.template operator()<std::uint8_t>();
    case Type::kS8:
      return function.template operator()<std::int8_t>();
    case Type::kU16:
      return function.template operator()<std::uint16_t>();
    case Type::kS16:
      return function.template operator()<std::int16_t>();
    case Type::kU32:
      return function.template operator()<std::uint32_t>();
    case Type::kS32:
      return function.template operator()<std::int32_t>();
    case Type::kU64:
      return function.template operator()<std::uint64_t>();
    case Type::kS64:
      return function.template operator()<std::int64_t>();
    case Type::kF32:
      return function.template operator()<float>();
    case Type::kF64:
      return function.template operator()<double>();
    case Type::kPredicate:
      break;
  }
  Unknown(instruction);
}

// "Division by zero yields an unspecified, machine-specific value" (div).
template <typename T>
T Quotient(T a, T b) {
  if (b == 0) {
    return static_cast<T>(-1);
  }
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) {
      return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    }
  }
  return static_cast<T>(a / b);
}

template <typename T>
T Remainder(T a, T b) {
  return b == 0 ? static_cast<T>(-1)
                : static_cast<T>(static_cast<std::uint64_t>(a) -
                                 static_cast<std::uint64_t>(Quotient(a, b)) *
                                     static_cast<std::uint64_t>(b));
}

// "Shift amounts greater than the register width N are clamped to N" (shl,
// shr).
template <typename T>
T ShiftLeft(T a, std::uint32_t by) {
  return by >= 8 * sizeof(T)
             ? T{0}
             : static_cast<T>(static_cast<std::uint64_t>(a) << by);
}

template <typename T>
T ShiftRight(T a, std::uint32_t by) {
  const unsigned most = 8 * sizeof(T) - 1;
  if (by > most) {
    return static_cast<T>(a < 0 ? -1 : 0);
  }
  return static_cast<T>(a >> by);
}

// Bits [position, position + length) of a; a signed field is extended by its
// topmost bit, or by a's where it goes past that.
template <typename T>
T BitField(T a, std::uint32_t position, std::uint32_t length) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (length == 0) {
    return 0;
  }
  const std::uint32_t last = std::min(position + length - 1, kBits - 1);
  const bool sign = std::is_signed_v<T> && (ShiftRight(a, last) & 1) != 0;
  T result = sign ? static_cast<T>(-1) : T{0};
  for (std::uint32_t i = 0; i < std::min(length, kBits); ++i) {
    const T bit = position + i < kBits
                      ? static_cast<T>(ShiftRight(a, position + i) & 1)
                      : static_cast<T>(sign);
    const T mask = ShiftLeft(T{1}, i);
    result = static_cast<T>((result & ~mask) | (bit != 0 ? mask : T{0}));
  }
  return result;
}

template <typename T>
bool Holds(Compare compare, T a, T b) {
  const bool nan = a != a || b != b;
  switch (compare) {
    case Compare::kEqual:
      return a == b;
    case Compare::kNotEqual:
      return !nan && a != b;
    case Compare::kLess:
      return a < b;
    case Compare::kLessOrEqual:
      return a <= b;
    case Compare::kGreater:
      return a > b;
    case Compare::kGreaterOrEqual:
      return a >= b;
    case Compare::kEqualUnordered:
      return nan || a == b;
    case Compare::kNotEqualUnordered:
      return nan || a != b;
    case Compare::kLessUnordered:
      return nan || a < b;
    case Compare::kLessOrEqualUnordered:
      return nan || a <= b;
    case Compare::kGreaterUnordered:
      return nan || a > b;
    case Compare::kGreaterOrEqualUnordered:
      return nan || a >= b;
    case Compare::kAreNumbers:
      return !nan;
    case Compare::kIsNan:
      return nan;
  }
  return false;
}

}  // namespace

Interpreter::Interpreter(const Kernel& kernel, Shape shape,
                         std::vector<unsigned char> parameters,
                         Translate translate)
    : kernel_(kernel),
      shape_(shape),
      parameters_(std::move(parameters)),
      translate_(std::move(translate)),
      rows_(static_cast<std::size_t>(kernel.rows) * shape.threads),
      windows_(8) {
  for (const auto& [row, value] : kernel_.constants) {
    std::fill_n(Row(row), shape_.threads, value);
  }
}

void Interpreter::Run() {
  for (unsigned block = 0; block < shape_.blocks; ++block) {
    RunBlock(block);
  }
}

// --- Which threads run ------------------------------------------------------

void Interpreter::RunBlock(unsigned block) {
  const auto fill = [this](Kernel::Special special, std::uint64_t value) {
    if (kernel_.special[special] >= 0) {
      std::fill_n(Row(kernel_.special[special]), shape_.threads, value);
    }
  };
  fill(Kernel::kBlock, block);
  fill(Kernel::kBlockSize, shape_.threads);
  fill(Kernel::kGridSize, shape_.blocks);
  if (kernel_.special[Kernel::kThread] >= 0) {
    std::iota(Row(kernel_.special[Kernel::kThread]),
              Row(kernel_.special[Kernel::kThread]) + shape_.threads, 0);
  }
  at_ = 0;
  group_.resize(shape_.threads);
  std::iota(group_.begin(), group_.end(), 0);
  waiting_.clear();
  next_waiting_ = kNowhere;
  while (true) {
    if (group_.empty() || at_ >= next_waiting_) {
      ChooseGroup();
      if (group_.empty()) {
        return;
      }
    }
    if (at_ >= kernel_.code.size()) {
      throw UnknownPtx(kernel_.name + " ends without ret");
    }
    Execute(kernel_.code[at_]);
  }
}

void Interpreter::ChooseGroup() {
  if (!group_.empty()) {
    waiting_.push_back({at_, std::move(group_)});
  }
  group_.clear();
  at_ = kNowhere;
  for (const Group& group : waiting_) {
    at_ = std::min(at_, group.at);
  }
  next_waiting_ = kNowhere;
  for (const Group& group : waiting_) {
    if (group.at == at_) {
      group_.insert(group_.end(), group.threads.begin(), group.threads.end());
    } else {
      next_waiting_ = std::min(next_waiting_, group.at);
    }
  }
  std::erase_if(waiting_, [&](const Group& group) { return group.at == at_; });
  std::sort(group_.begin(), group_.end());
}

void Interpreter::Execute(const Instruction& instruction) {
  if (instruction.op == Op::kBranch) {
    Branch(instruction);
    return;
  }
  if (instruction.guard < 0) {
    if (instruction.op == Op::kReturn) {
      group_.clear();
      return;
    }
    Calculate(instruction);
    ++at_;
    return;
  }
  // The others wait at the next instruction.
  const std::uint64_t* const guard = Row(instruction.guard);
  const auto chosen =
      std::stable_partition(group_.begin(), group_.end(), [&](unsigned thread) {
        return (guard[thread] != 0) != instruction.negated;
      });
  std::vector<unsigned> others(chosen, group_.end());
  group_.erase(chosen, group_.end());
  if (!group_.empty() && instruction.op != Op::kReturn) {
    Calculate(instruction);
  } else {
    group_.clear();
  }
  group_.insert(group_.end(), others.begin(), others.end());
  std::sort(group_.begin(), group_.end());
  ++at_;
}

void Interpreter::Branch(const Instruction& instruction) {
  if (instruction.guard < 0) {
    at_ = instruction.target;
    return;
  }
  const std::uint64_t* const guard = Row(instruction.guard);
  const auto goes = [&](unsigned thread) {
    return (guard[thread] != 0) != instruction.negated;
  };
  const auto going = std::count_if(group_.begin(), group_.end(), goes);
  if (going == 0) {
    ++at_;
  } else if (going == static_cast<std::ptrdiff_t>(group_.size())) {
    at_ = instruction.target;
  } else {
    Group other{instruction.target, {}};
    std::copy_if(group_.begin(), group_.end(),
                 std::back_inserter(other.threads), goes);
    std::erase_if(group_, goes);
    ++at_;
    next_waiting_ = std::min(next_waiting_, other.at);
    waiting_.push_back(std::move(other));
  }
}

template <typename Function>
void Interpreter::ForEachThread(Function function) {
  if (group_.size() == shape_.threads) {
    for (unsigned thread = 0; thread < shape_.threads; ++thread) {
      function(thread);
    }
  } else {
    for (const unsigned thread : group_) {
      function(thread);
    }
  }
}

// --- Arithmetic -------------------------------------------------------------

template <typename T, typename Function>
void Interpreter::Unary(const Instruction& instruction, Function function) {
  std::uint64_t* const result = Row(instruction.results[0]);
  const std::uint64_t* const a = Row(instruction.operands[0]);
  ForEachThread([=](unsigned thread) {
    result[thread] = ToRow<T>(function(FromRow<T>(a[thread])));
  });
}

template <typename T, typename Function>
void Interpreter::Binary(const Instruction& instruction, Function function) {
  std::uint64_t* const result = Row(instruction.results[0]);
  const std::uint64_t* const a = Row(instruction.operands[0]);
  const std::uint64_t* const b = Row(instruction.operands[1]);
  ForEachThread([=](unsigned thread) {
    result[thread] =
        ToRow<T>(function(FromRow<T>(a[thread]), FromRow<T>(b[thread])));
  });
}

void Interpreter::Calculate(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kMove: {
      std::uint64_t* const result = Row(instruction.results[0]);
      const std::uint64_t* const from = Row(instruction.operands[0]);
      return ForEachThread(
          [=](unsigned thread) { result[thread] = from[thread]; });
    }
    case Op::kSelect: {
      std::uint64_t* const result = Row(instruction.results[0]);
      const std::uint64_t* const a = Row(instruction.operands[0]);
      const std::uint64_t* const b = Row(instruction.operands[1]);
      const std::uint64_t* const which = Row(instruction.operands[2]);
      return ForEachThread([=](unsigned thread) {
        result[thread] = which[thread] != 0 ? a[thread] : b[thread];
      });
    }
    case Op::kCompare:
      return WithType(instruction.type, instruction,
                      [&]<typename T>() { CompareValues<T>(instruction); });
    case Op::kConvert:
      return Convert(instruction);
    case Op::kLoad:
      return WithType(instruction.type, instruction,
                      [&]<typename T>() { Load<T>(instruction); });
    case Op::kStore:
      return WithType(instruction.type, instruction,
                      [&]<typename T>() { Store<T>(instruction); });
    case Op::kLoadParameter:
      return LoadParameter(instruction);
    default:
      break;
  }
  if (instruction.type == Type::kPredicate) {
    return CalculateInteger<bool>(instruction);
  }
  WithType(instruction.type, instruction, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      CalculateInteger<T>(instruction);
    } else {
      CalculateFloat<T>(instruction);
    }
  });
}

// Of predicates, T is bool, and only the logic is known.
template <typename T>
void Interpreter::CalculateInteger(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kAnd:
      return Binary<T>(instruction,
                       [](T a, T b) { return static_cast<T>(a & b); });
    case Op::kOr:
      return Binary<T>(instruction,
                       [](T a, T b) { return static_cast<T>(a | b); });
    case Op::kXor:
      return Binary<T>(instruction,
                       [](T a, T b) { return static_cast<T>(a ^ b); });
    case Op::kNot:
      return Unary<T>(instruction, [](T a) -> T {
        if constexpr (std::is_same_v<T, bool>) {
          return !a;
        } else {
          return static_cast<T>(~a);
        }
      });
    default:
      break;
  }
  if constexpr (std::is_same_v<T, bool>) {
    Unknown(instruction);
  } else {
    // Unsigned: integers wrap around.
    using U = std::uint64_t;
    const auto shift = Row(instruction.operands.back());
    std::uint64_t* const result = Row(instruction.results[0]);
    const std::uint64_t* const first = Row(instruction.operands[0]);
    switch (instruction.op) {
      case Op::kAdd:
        return Binary<T>(instruction, [](T a, T b) {
          return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
        });
      case Op::kSubtract:
        return Binary<T>(instruction, [](T a, T b) {
          return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
        });
      case Op::kMultiplyLow:
        return Binary<T>(instruction, [](T a, T b) {
          return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
        });
      case Op::kMultiplyWide: {
        if constexpr (sizeof(T) > 4) {
          Unknown(instruction);
        } else {
          const std::uint64_t* const second = Row(instruction.operands[1]);
          return ForEachThread([=](unsigned thread) {
            using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t,
                                            std::uint64_t>;
            result[thread] =
                static_cast<U>(static_cast<Wide>(FromRow<T>(first[thread])) *
                               static_cast<Wide>(FromRow<T>(second[thread])));
          });
        }
      }
      case Op::kDivide:
        return Binary<T>(instruction, &Quotient<T>);
      case Op::kRemainder:
        return Binary<T>(instruction, &Remainder<T>);
      case Op::kMinimum:
        return Binary<T>(instruction, [](T a, T b) { return a < b ? a : b; });
      case Op::kMaximum:
        return Binary<T>(instruction, [](T a, T b) { return a < b ? b : a; });
      case Op::kNegate:
        return Unary<T>(instruction, [](T a) {
          return static_cast<T>(0 - static_cast<U>(a));
        });
      case Op::kShiftLeft:
        return ForEachThread([=](unsigned thread) {
          result[thread] =
              ToRow<T>(ShiftLeft(FromRow<T>(first[thread]),
                                 static_cast<std::uint32_t>(shift[thread])));
        });
      case Op::kShiftRight:
        return ForEachThread([=](unsigned thread) {
          result[thread] =
              ToRow<T>(ShiftRight(FromRow<T>(first[thread]),
                                  static_cast<std::uint32_t>(shift[thread])));
        });
      case Op::kBitFieldExtract: {
        const std::uint64_t* const position = Row(instruction.operands[1]);
        return ForEachThread([=](unsigned thread) {
          result[thread] =
              ToRow<T>(BitField(FromRow<T>(first[thread]),
                                static_cast<std::uint32_t>(position[thread]),
                                static_cast<std::uint32_t>(shift[thread])));
        });
      }
      default:
        Unknown(instruction);
    }
  }
}

template <typename T>
void Interpreter::CalculateFloat(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kAdd:
      return Binary<T>(instruction, [](T a, T b) { return Canonical(a + b); });
    case Op::kSubtract:
      return Binary<T>(instruction, [](T a, T b) { return Canonical(a - b); });
    case Op::kMultiplyLow:
      return Binary<T>(instruction, [](T a, T b) { return Canonical(a * b); });
    case Op::kDivide:
      return Binary<T>(instruction, [](T a, T b) { return Canonical(a / b); });
    case Op::kNegate:
      return Unary<T>(instruction, [](T a) { return Canonical(-a); });
    default:
      Unknown(instruction);
  }
}

template <typename T>
void Interpreter::CompareValues(const Instruction& instruction) {
  std::uint64_t* const result = Row(instruction.results[0]);
  const std::uint64_t* const a = Row(instruction.operands[0]);
  const std::uint64_t* const b = Row(instruction.operands[1]);
  const Compare compare = instruction.compare;
  ForEachThread([=](unsigned thread) {
    result[thread] =
        Holds(compare, FromRow<T>(a[thread]), FromRow<T>(b[thread])) ? 1 : 0;
  });
}

void Interpreter::Convert(const Instruction& instruction) {
  std::uint64_t* const result = Row(instruction.results[0]);
  const std::uint64_t* const from = Row(instruction.operands[0]);
  WithType(instruction.type, instruction, [&]<typename To>() {
    WithType(instruction.from, instruction, [&]<typename From>() {
      if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        Unknown(instruction);
      } else {
        ForEachThread([=](unsigned thread) {
          result[thread] =
              ToRow<To>(static_cast<To>(FromRow<From>(from[thread])));
        });
      }
    });
  });
}

// --- Memory -----------------------------------------------------------------

// Where `bytes` at `address` are. Throws where the device could not reach them.
unsigned char* Interpreter::Find(Address address, std::size_t bytes,
                                 const Instruction& instruction) {
  // Vectors too: "addresses must be naturally aligned to a multiple of the
  // access size" (ld).
  if (address % bytes != 0) {
    throw Fault{kMisalignedAddress, address, instruction.text};
  }
  for (const Window& window : windows_) {
    if (address >= window.begin && address + bytes <= window.end) {
      return window.bytes + (address - window.begin);
    }
  }
  const Window found = translate_(address);
  if (address < found.begin || address + bytes > found.end) {
    throw Fault{kIllegalAddress, address, instruction.text};
  }
  windows_[next_window_++ % windows_.size()] = found;
  return found.bytes + (address - found.begin);
}

template <typename T>
void Interpreter::Load(const Instruction& instruction) {
  const std::uint64_t* const addresses = Row(instruction.operands[0]);
  const std::size_t width = instruction.results.size();
  ForEachThread([&](unsigned thread) {
    const unsigned char* const at =
        Find(addresses[thread] + static_cast<Address>(instruction.offset),
             sizeof(T) * width, instruction);
    for (std::size_t i = 0; i < width; ++i) {
      T value;
      std::memcpy(&value, at + i * sizeof(T), sizeof(T));
      Row(instruction.results[i])[thread] = ToRow<T>(value);
    }
  });
}

template <typename T>
void Interpreter::Store(const Instruction& instruction) {
  const std::uint64_t* const addresses = Row(instruction.operands[0]);
  const std::size_t width = instruction.operands.size() - 1;
  ForEachThread([&](unsigned thread) {
    unsigned char* const at =
        Find(addresses[thread] + static_cast<Address>(instruction.offset),
             sizeof(T) * width, instruction);
    for (std::size_t i = 0; i < width; ++i) {
      const T value = FromRow<T>(Row(instruction.operands[i + 1])[thread]);
      std::memcpy(at + i * sizeof(T), &value, sizeof(T));
    }
  });
}

void Interpreter::LoadParameter(const Instruction& instruction) {
  if (instruction.width != 1) {
    Unknown(instruction);
  }
  const std::uint64_t* const addresses = Row(instruction.operands[0]);
  std::uint64_t* const result = Row(instruction.results[0]);
  WithType(instruction.type, instruction, [&]<typename T>() {
    ForEachThread([&](unsigned thread) {
      const Address at =
          addresses[thread] + static_cast<Address>(instruction.offset);
      if (at + sizeof(T) > parameters_.size()) {
        throw Fault{kIllegalAddress, at, instruction.text};
      }
      T value;
      std::memcpy(&value, parameters_.data() + at, sizeof(T));
      result[thread] = ToRow<T>(value);
    });
  });
}

}  // namespace fake_cuda
