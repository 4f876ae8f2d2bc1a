#ifndef RINGPIPE_CUDA_FAKE_DRIVER_INTERPRETER_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_INTERPRETER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/fake_driver/abi.h"
#include "cuda/fake_driver/ptx.h"

namespace fake_cuda {

// A piece of memory as the device addresses it, and where its bytes are.
struct Window {
  Address begin = 0;
  Address end = 0;
  unsigned char* bytes = nullptr;  // those at `begin`
};

// Where an address of a kernel lies; an empty Window: nowhere.
using Translate = std::function<Window(Address address)>;

// What ends a kernel, and with it the context.
struct Fault {
  Result error;
  Address address;
  std::string text;  // of the instruction
};

// A launch of a kernel. Blocks run one after another. The threads of a block
// run in lockstep as long as they stay together; those that are behind (the
// lowest instruction) run first, so that they meet again.
class Interpreter {
 public:
  struct Shape {
    unsigned blocks;
    unsigned threads;  // of a block
  };

  // `kernel` outlives it.
  Interpreter(const Kernel& kernel, Shape shape,
              std::vector<unsigned char> parameters, Translate translate);

  // Throws Fault.
  void Run();

 private:
  // Threads of a block that are at the same instruction.
  struct Group {
    std::size_t at;
    std::vector<unsigned> threads;
  };

  void RunBlock(unsigned block);
  // Merges what is at the same instruction into group_, the lowest.
  void ChooseGroup();
  void Execute(const Instruction& instruction);
  void Branch(const Instruction& instruction);
  void Calculate(const Instruction& instruction);
  template <typename T>
  void CalculateInteger(const Instruction& instruction);
  template <typename T>
  void CalculateFloat(const Instruction& instruction);
  template <typename T>
  void CompareValues(const Instruction& instruction);
  void Convert(const Instruction& instruction);
  template <typename T>
  void Load(const Instruction& instruction);
  template <typename T>
  void Store(const Instruction& instruction);
  void LoadParameter(const Instruction& instruction);
  unsigned char* Find(Address address, std::size_t bytes,
                      const Instruction& instruction);

  std::uint64_t* Row(int row) {
    return rows_.data() + static_cast<std::size_t>(row) * shape_.threads;
  }
  template <typename Function>
  void ForEachThread(Function function);
  template <typename T, typename Function>
  void Unary(const Instruction& instruction, Function function);
  template <typename T, typename Function>
  void Binary(const Instruction& instruction, Function function);

  const Kernel& kernel_;
  const Shape shape_;
  const std::vector<unsigned char> parameters_;
  const Translate translate_;
  std::vector<std::uint64_t> rows_;
  std::size_t at_ = 0;            // of group_
  std::vector<unsigned> group_;   // the threads that run
  std::vector<Group> waiting_;    // the others that have not returned
  std::size_t next_waiting_ = 0;  // the lowest `at` of those
  std::vector<Window> windows_;   // that were met last
  std::size_t next_window_ = 0;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_INTERPRETER_H_
