#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cuda/fake_driver/ptx.h"

namespace fake_cuda {
namespace {

// The newest that this parser was tried with, and the fake devices' capability.
constexpr int kNewestVersion = 90;  // PTX 9.0
constexpr int kCapability = 90;     // sm_90

std::string Trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(c) != 0; };
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return std::string(text);
}

// At `separator`, but not within braces or brackets.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) {
    part = Trim(part);
  }
  return parts;
}

std::optional<Type> ParseType(const std::string& name) {
  static const std::map<std::string, Type> types = {
      {"pred", Type::kPredicate}, {"u8", Type::kU8},   {"s8", Type::kS8},
      {"b8", Type::kU8},          {"u16", Type::kU16}, {"s16", Type::kS16},
      {"b16", Type::kU16},        {"u32", Type::kU32}, {"s32", Type::kS32},
      {"b32", Type::kU32},        {"u64", Type::kU64}, {"s64", Type::kS64},
      {"b64", Type::kU64},        {"f32", Type::kF32}, {"f64", Type::kF64}};
  const auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

bool IsFloat(Type type) { return type == Type::kF32 || type == Type::kF64; }

// An instruction's name, taken apart at its dots; whoever reads it takes what
// he understands, and nothing may be left.
class Words {
 public:
  explicit Words(const std::string& text) : words_(Split(text, '.')) {
    std::reverse(words_.begin(), words_.end());
  }
  bool empty() const { return words_.empty(); }
  std::string Next() {
    if (words_.empty()) {
      return "";
    }
    std::string word = words_.back();
    words_.pop_back();
    return word;
  }
  // Takes the next if it is `word`.
  bool Take(const char* word) {
    if (words_.empty() || words_.back() != word) {
      return false;
    }
    words_.pop_back();
    return true;
  }

 private:
  std::vector<std::string> words_;  // the next is the last
};

class KernelParser {
 public:
  Kernel Parse(const std::string& head, const std::string& body) {
    const std::size_t open = head.find('(');
    kernel_.name = Trim(head.substr(0, open));
    if (open != std::string::npos) {
      const std::size_t close = head.rfind(')');
      if (!Trim(head.substr(close + 1)).empty()) {
        throw UnknownPtx("after the parameters: " + head.substr(close + 1));
      }
      ParseParameters(head.substr(open + 1, close - open - 1));
    }
    ParseBody(body);
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) {
        throw UnknownPtx("no label " + label);
      }
      kernel_.code[at].target = found->second;
    }
    return std::move(kernel_);
  }

 private:
  // ".param .align 8 .b8 name[96]", or ".param .u64 name".
  void ParseParameters(const std::string& list) {
    for (const std::string& item : Split(list, ',')) {
      if (item.empty()) {
        continue;
      }
      std::vector<std::string> words = Split(item, ' ');
      std::erase(words, "");
      std::size_t at = 0;
      std::size_t alignment = 1;
      std::size_t count = 1;
      const auto next = [&] {
        return at < words.size() ? words[at++] : std::string();
      };
      if (next() != ".param") {
        throw UnknownPtx("a parameter: " + item);
      }
      std::string word = next();
      if (word == ".align") {
        alignment = std::stoul(next());
        word = next();
      }
      const auto type = ParseType(word.substr(1));
      std::string name = next();
      if (!type || name.empty() || at != words.size()) {
        throw UnknownPtx("a parameter: " + item);
      }
      if (const std::size_t bracket = name.find('[');
          bracket != std::string::npos) {
        count = std::stoul(name.substr(bracket + 1));
        name.resize(bracket);
      }
      AddParameter(name, SizeOf(*type), count, alignment);
    }
  }

  void AddParameter(const std::string& name, std::size_t bytes,
                    std::size_t count, std::size_t alignment) {
    alignment = std::max(alignment, bytes);
    std::size_t& end = kernel_.parameter_bytes;
    end = (end + alignment - 1) / alignment * alignment;
    parameters_[name] = end;
    kernel_.parameters.push_back({end, bytes * count});
    end += bytes * count;
  }

  // Statements end in ';', labels in ':'.
  void ParseBody(const std::string& body) {
    std::string statement;
    for (const char c : body) {
      if (c == ';') {
        ParseStatement(Trim(statement));
        statement.clear();
      } else if (c == ':') {
        labels_[Trim(statement)] = kernel_.code.size();
        statement.clear();
      } else {
        statement += c;
      }
    }
    if (!Trim(statement).empty()) {
      throw UnknownPtx(Trim(statement));
    }
  }

  void ParseStatement(const std::string& statement) {
    if (statement.starts_with(".reg")) {
      ParseRegisters(statement);
      return;
    }
    try {
      kernel_.code.push_back(ParseInstruction(statement));
    } catch (const UnknownPtx& unknown) {
      throw UnknownPtx(kernel_.name + ": " + statement + ": " + unknown.what());
    }
  }

  // ".reg .b32 %r<17>": %r0 to %r16.
  void ParseRegisters(const std::string& statement) {
    const std::size_t percent = statement.find('%');
    const std::size_t open = statement.find('<');
    if (percent == std::string::npos || open == std::string::npos) {
      throw UnknownPtx(statement);
    }
    const std::string name = statement.substr(percent, open - percent);
    const int count = std::atoi(statement.c_str() + open + 1);
    for (int i = 0; i < count; ++i) {
      registers_[name + std::to_string(i)] = kernel_.rows++;
    }
  }

  int Register(const std::string& name) const {
    const auto found = registers_.find(name);
    if (found == registers_.end()) {
      throw UnknownPtx("no register " + name);
    }
    return found->second;
  }

  int Constant(std::uint64_t value) {
    const auto found =
        std::find_if(kernel_.constants.begin(), kernel_.constants.end(),
                     [&](const auto& one) { return one.second == value; });
    if (found != kernel_.constants.end()) {
      return found->first;
    }
    kernel_.constants.emplace_back(kernel_.rows, value);
    return kernel_.rows++;
  }

  // The row of an operand.
  int Operand(const std::string& text) {
    static const std::map<std::string, Kernel::Special> special = {
        {"%tid.x", Kernel::kThread},
        {"%ntid.x", Kernel::kBlockSize},
        {"%ctaid.x", Kernel::kBlock},
        {"%nctaid.x", Kernel::kGridSize}};
    if (const auto found = special.find(text); found != special.end()) {
      int& row = kernel_.special[found->second];
      row = row < 0 ? kernel_.rows++ : row;
      return row;
    }
    if (text.starts_with("%")) {
      return Register(text);
    }
    if (const auto found = parameters_.find(text); found != parameters_.end()) {
      return Constant(found->second);  // an address in the space of parameters
    }
    char* end = nullptr;
    std::uint64_t value = 0;
    if (text.starts_with("0f") || text.starts_with("0d")) {
      value = std::strtoull(text.c_str() + 2, &end, 16);
    } else if (text.starts_with("-")) {
      value = static_cast<std::uint64_t>(std::strtoll(text.c_str(), &end, 0));
    } else {
      value = std::strtoull(text.c_str(), &end, 0);
    }
    if (text.empty() || *end != '\0') {
      throw UnknownPtx("no operand: " + text);
    }
    return Constant(value);
  }

  // "[%rd4+16]": the row of the base; the offset goes to `instruction`.
  int AddressOperand(const std::string& text, Instruction& instruction) {
    if (!text.starts_with("[") || !text.ends_with("]")) {
      throw UnknownPtx("no address: " + text);
    }
    std::string base = text.substr(1, text.size() - 2);
    if (const std::size_t plus = base.find('+'); plus != std::string::npos) {
      instruction.offset = std::stoll(base.substr(plus + 1));
      base.resize(plus);
    }
    return Operand(Trim(base));
  }

  // "{%r1, %r2}", or one.
  std::vector<std::string> VectorOperand(const std::string& text) {
    return text.starts_with("{")
               ? Split(std::string_view(text).substr(1, text.size() - 2), ',')
               : std::vector<std::string>{text};
  }

  Instruction ParseInstruction(const std::string& statement) {
    Instruction instruction;
    instruction.text = statement;
    std::string rest = statement;
    if (rest.starts_with("@")) {
      const std::size_t space = rest.find_first_of(" \t");
      std::string guard = rest.substr(1, space - 1);
      if (guard.starts_with("!")) {
        instruction.negated = true;
        guard.erase(0, 1);
      }
      instruction.guard = Register(guard);
      rest = Trim(rest.substr(space));
    }
    const std::size_t space = std::min(rest.find_first_of(" \t"), rest.size());
    Words words(rest.substr(0, space));
    const std::string list = Trim(rest.substr(space));
    const std::string name = words.Next();
    if (name == "bra") {
      static_cast<void>(words.Take("uni"));
      instruction.op = Op::kBranch;
      branches_.emplace_back(kernel_.code.size(), list);
    } else if (name == "ret" || name == "exit") {
      instruction.op = Op::kReturn;
    } else if (name == "ld" || name == "st") {
      ParseMemory(name == "ld", words, Split(list, ','), instruction);
    } else {
      ParseArithmetic(name, words, Split(list, ','), instruction);
    }
    if (!words.empty()) {
      throw UnknownPtx("the suffix ." + words.Next());
    }
    return instruction;
  }

  // Generic addresses are those of the global space here.
  void ParseMemory(bool load, Words& words,
                   const std::vector<std::string>& operands,
                   Instruction& instruction) {
    instruction.op = load ? Op::kLoad : Op::kStore;
    if (load && words.Take("param")) {
      instruction.op = Op::kLoadParameter;
    } else {
      static_cast<void>(words.Take("global"));
    }
    instruction.width = words.Take("v2") ? 2 : words.Take("v4") ? 4 : 1;
    instruction.type = NextType(words);
    if (operands.size() != 2) {
      throw UnknownPtx("the operands");
    }
    const auto values = VectorOperand(operands[load ? 0 : 1]);
    if (values.size() != static_cast<std::size_t>(instruction.width)) {
      throw UnknownPtx("the width");
    }
    instruction.operands.push_back(
        AddressOperand(operands[load ? 1 : 0], instruction));
    for (const std::string& value : values) {
      if (load) {
        instruction.results.push_back(Register(value));
      } else {
        instruction.operands.push_back(Operand(value));
      }
    }
  }

  Type NextType(Words& words) {
    const std::string word = words.Next();
    const auto type = ParseType(word);
    if (!type) {
      throw UnknownPtx("the type ." + word);
    }
    return *type;
  }

  // One result; as many operands as the operation has.
  void ParseArithmetic(const std::string& name, Words& words,
                       const std::vector<std::string>& operands,
                       Instruction& instruction) {
    const std::size_t count = ParseOperation(name, words, instruction);
    if (operands.size() != count + 1) {
      throw UnknownPtx("the operands");
    }
    instruction.results.push_back(Register(operands[0]));
    for (std::size_t i = 1; i <= count; ++i) {
      instruction.operands.push_back(Operand(operands[i]));
    }
  }

  // Returns how many operands it takes.
  std::size_t ParseOperation(const std::string& name, Words& words,
                             Instruction& instruction) {
    if (name == "cvta") {
      // The global space is part of the generic one, at the same addresses.
      static_cast<void>(words.Take("to"));
      if (!words.Take("global")) {
        throw UnknownPtx("the space");
      }
      instruction.op = Op::kMove;
      instruction.type = NextType(words);
      return 1;
    }
    if (name == "setp") {
      instruction.op = Op::kCompare;
      const std::string compare = words.Next();
      instruction.type = NextType(words);
      instruction.compare = ParseCompare(compare, IsFloat(instruction.type));
      return 2;
    }
    if (name == "cvt") {
      return ParseConvert(words, instruction);
    }
    if (name == "mul") {
      return ParseMultiply(words, instruction);
    }
    if (name == "mad" || name == "fma") {
      throw UnknownPtx("contraction");  // the kernels are compiled without
    }
    return ParseSimple(name, words, instruction);
  }

  std::size_t ParseSimple(const std::string& name, Words& words,
                          Instruction& instruction) {
    struct Row {
      Op op;
      std::size_t operands;
      enum { kAny, kIntegers, kRounded } types;
    };
    static const std::map<std::string, Row> rows = {
        {"add", {Op::kAdd, 2, Row::kRounded}},
        {"sub", {Op::kSubtract, 2, Row::kRounded}},
        {"div", {Op::kDivide, 2, Row::kRounded}},
        {"rem", {Op::kRemainder, 2, Row::kIntegers}},
        {"min", {Op::kMinimum, 2, Row::kIntegers}},
        {"max", {Op::kMaximum, 2, Row::kIntegers}},
        {"neg", {Op::kNegate, 1, Row::kAny}},
        {"and", {Op::kAnd, 2, Row::kIntegers}},
        {"or", {Op::kOr, 2, Row::kIntegers}},
        {"xor", {Op::kXor, 2, Row::kIntegers}},
        {"not", {Op::kNot, 1, Row::kIntegers}},
        {"shl", {Op::kShiftLeft, 2, Row::kIntegers}},
        {"shr", {Op::kShiftRight, 2, Row::kIntegers}},
        {"bfe", {Op::kBitFieldExtract, 3, Row::kIntegers}},
        {"selp", {Op::kSelect, 3, Row::kAny}},
        {"mov", {Op::kMove, 1, Row::kAny}}};
    const auto found = rows.find(name);
    if (found == rows.end()) {
      throw UnknownPtx("the instruction " + name);
    }
    const Row& row = found->second;
    // To nearest even, which is also what no suffix means, but for div.
    const bool rounded = row.types == Row::kRounded && words.Take("rn");
    instruction.op = row.op;
    instruction.type = NextType(words);
    const bool is_float = IsFloat(instruction.type);
    if ((is_float && row.types == Row::kIntegers) || (!is_float && rounded) ||
        (is_float && !rounded && row.op == Op::kDivide)) {
      throw UnknownPtx("the type, or its rounding");
    }
    return row.operands;
  }

  std::size_t ParseMultiply(Words& words, Instruction& instruction) {
    const bool low = words.Take("lo");
    const bool wide = !low && words.Take("wide");
    const bool rounded = words.Take("rn");
    instruction.op = wide ? Op::kMultiplyWide : Op::kMultiplyLow;
    instruction.type = NextType(words);
    if (IsFloat(instruction.type) ? low || wide : !(low || wide) || rounded) {
      throw UnknownPtx("the form of mul");
    }
    return 2;
  }

  std::size_t ParseConvert(Words& words, Instruction& instruction) {
    const bool nearest = words.Take("rn");
    instruction.op = Op::kConvert;
    instruction.type = NextType(words);
    instruction.from = NextType(words);
    const bool to_float = IsFloat(instruction.type);
    const bool from_float = IsFloat(instruction.from);
    // f32 to f64 is exact; from float to integer no kernel converts.
    if ((from_float && !to_float) ||
        (to_float && !nearest &&
         !(instruction.type == Type::kF64 && from_float)) ||
        (!to_float && nearest)) {
      throw UnknownPtx("the conversion");
    }
    return 1;
  }

  static Compare ParseCompare(const std::string& name, bool is_float) {
    static const std::map<std::string, Compare> common = {
        {"eq", Compare::kEqual},   {"ne", Compare::kNotEqual},
        {"lt", Compare::kLess},    {"le", Compare::kLessOrEqual},
        {"gt", Compare::kGreater}, {"ge", Compare::kGreaterOrEqual}};
    static const std::map<std::string, Compare> of_floats = {
        {"equ", Compare::kEqualUnordered},
        {"neu", Compare::kNotEqualUnordered},
        {"ltu", Compare::kLessUnordered},
        {"leu", Compare::kLessOrEqualUnordered},
        {"gtu", Compare::kGreaterUnordered},
        {"geu", Compare::kGreaterOrEqualUnordered},
        {"num", Compare::kAreNumbers},
        {"nan", Compare::kIsNan}};
    static const std::map<std::string, Compare> of_unsigned = {
        {"lo", Compare::kLess},
        {"ls", Compare::kLessOrEqual},
        {"hi", Compare::kGreater},
        {"hs", Compare::kGreaterOrEqual}};
    for (const auto* table : {&common, is_float ? &of_floats : &of_unsigned}) {
      if (const auto found = table->find(name); found != table->end()) {
        return found->second;
      }
    }
    throw UnknownPtx("the comparison ." + name);
  }

  Kernel kernel_;
  std::map<std::string, std::size_t> parameters_;  // offsets
  std::map<std::string, int> registers_;           // rows
  std::map<std::string, std::size_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
};

std::string WithoutComments(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.compare(at, 2, "/*") == 0) {
      const std::size_t end = text.find("*/", at);
      at = end == std::string::npos ? text.size() : end + 2;
    } else {
      result += text[at++];
    }
  }
  return result;
}

// ".version 6.0 .target sm_50 .address_size 64".
void CheckHead(const std::string& head) {
  std::string flat = head;
  std::replace_if(
      flat.begin(), flat.end(), [](char c) { return std::isspace(c) != 0; },
      ' ');
  std::vector<std::string> words = Split(flat, ' ');
  std::erase(words, "");
  if (words.size() != 6 || words[0] != ".version" || words[2] != ".target" ||
      words[4] != ".address_size" || words[5] != "64" ||
      !words[3].starts_with("sm_")) {
    throw UnknownPtx("the head: " + flat);
  }
  const double version = std::atof(words[1].c_str());
  if (version <= 0 || version * 10 > kNewestVersion + 0.5) {
    throw UnknownPtx("version " + words[1]);
  }
  if (std::atoi(words[3].c_str() + 3) > kCapability) {
    throw UnknownPtx("target " + words[3]);
  }
}

}  // namespace

std::size_t SizeOf(Type type) {
  switch (type) {
    case Type::kPredicate:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kU16:
    case Type::kS16:
      return 2;
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
  }
  return 0;
}

std::map<std::string, Kernel> ParsePtx(const std::string& text) {
  constexpr std::string_view kEntry = ".visible .entry ";
  const std::string ptx = WithoutComments(text);
  std::map<std::string, Kernel> kernels;
  std::size_t at = ptx.find(kEntry);
  CheckHead(ptx.substr(0, at));
  while (at != std::string::npos) {
    at += kEntry.size();
    const std::size_t open = ptx.find("\n{", at);
    const std::size_t close = ptx.find("\n}", open);
    if (open == std::string::npos || close == std::string::npos) {
      throw UnknownPtx("a kernel without a body");
    }
    std::string head = ptx.substr(at, open - at);
    std::replace_if(
        head.begin(), head.end(), [](char c) { return std::isspace(c) != 0; },
        ' ');
    Kernel kernel =
        KernelParser().Parse(head, ptx.substr(open + 2, close - open - 2));
    const std::string name = kernel.name;
    kernels[name] = std::move(kernel);
    at = ptx.find_first_not_of(" \t\n", close + 2);
    if (at != std::string::npos &&
        ptx.compare(at, kEntry.size(), kEntry) != 0) {
      throw UnknownPtx("between kernels: " + ptx.substr(at, 40));
    }
  }
  return kernels;
}

}  // namespace fake_cuda
