#include "cuda/fake_driver/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "cuda/fake_driver/settings.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t WholePages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

Address AddressOf(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

unsigned char* MapPages(std::size_t bytes, int protection) {
  void* const memory = mmap(nullptr, bytes, protection,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
}

// A host that reads what a device has allocated reads nothing sensible: so that
// a test does not find zeros by luck.
void Poison(unsigned char* data, std::size_t bytes) {
  std::fill_n(data, std::min<std::size_t>(bytes, 1 << 20), 0xcb);
}

}  // namespace

Address Memory::TakeAddresses(std::size_t bytes) {
  std::vector<Address>& known = free_[bytes];
  if (!known.empty()) {
    const Address address = known.back();
    known.pop_back();
    return address;
  }
  return AddressOf(MapPages(bytes, PROT_NONE));
}

void Memory::GiveAddresses(Address address, std::size_t bytes) {
  free_[bytes].push_back(address);
}

Address Memory::Allocate(Kind kind, std::size_t bytes, Device device,
                         Context* context, Pool* pool) {
  const std::size_t whole = WholePages(bytes);
  unsigned char* const data = MapPages(whole, PROT_READ | PROT_WRITE);
  if (data == nullptr) {
    return 0;
  }
  Poison(data, whole);
  const std::lock_guard lock(mutex_);
  const bool of_host = kind == Kind::kManaged || kind == Kind::kHost;
  const Address begin = of_host ? AddressOf(data) : TakeAddresses(whole);
  Range range{kind, begin, bytes, data, device, context};
  range.pool = pool;
  ranges_[begin] = range;
  return begin;
}

void Memory::DropLocked(std::map<Address, Range>::iterator found) {
  const Range range = found->second;
  ranges_.erase(found);
  const std::size_t whole = WholePages(range.bytes);
  switch (range.kind) {
    case Kind::kDevice:
    case Kind::kPool:
      GiveAddresses(range.begin, whole);
      munmap(range.data, whole);
      break;
    case Kind::kManaged:
    case Kind::kHost:
      munmap(range.data, whole);
      break;
    case Kind::kRegistered:
      if (const auto alias = ranges_.find(range.partner);
          alias != ranges_.end()) {
        DropLocked(alias);
      }
      break;
    case Kind::kAlias: {
      const Address page = range.begin / kPage * kPage;
      GiveAddresses(page, WholePages(range.begin - page + range.bytes));
      break;
    }
    case Kind::kMapped:
      break;  // by Unmap alone
  }
}

bool Memory::Free(Address address, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.kind != kind) {
    return false;
  }
  DropLocked(found);
  return true;
}

void Memory::FreeAllOf(const Context* context) {
  const std::lock_guard lock(mutex_);
  std::vector<Address> of_context;
  for (const auto& [begin, range] : ranges_) {
    if (range.context == context && range.kind != Kind::kAlias) {
      of_context.push_back(begin);
    }
  }
  for (const Address address : of_context) {
    DropLocked(ranges_.find(address));
  }
}

Result Memory::Register(void* memory, std::size_t bytes, Device device,
                        Context* context) {
  const Address begin = AddressOf(memory);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (FindLocked(begin) != nullptr ||
      (next != ranges_.end() && next->first < begin + bytes)) {
    return kHostMemoryAlreadyRegistered;
  }
  auto* const data = static_cast<unsigned char*>(memory);
  Range range{Kind::kRegistered, begin, bytes, data, device, context};
  if (!Settings::Get().same_pointers) {
    const std::size_t in_page = begin % kPage;
    const Address alias = TakeAddresses(WholePages(in_page + bytes)) + in_page;
    range.partner = alias;
    Range other{Kind::kAlias, alias, bytes, data, device, context};
    other.partner = begin;
    ranges_[alias] = other;
  }
  ranges_[begin] = range;
  return kSuccess;
}

Result Memory::Unregister(void* memory) {
  return Free(AddressOf(memory), Kind::kRegistered) ? kSuccess
                                                    : kHostMemoryNotRegistered;
}

void Memory::UnregisterAll() {
  const std::lock_guard lock(mutex_);
  std::vector<Address> registered;
  for (const auto& [begin, range] : ranges_) {
    if (range.kind == Kind::kRegistered) {
      registered.push_back(begin);
    }
  }
  for (const Address address : registered) {
    DropLocked(ranges_.find(address));
  }
}

// --- Virtual memory management ----------------------------------------------

Address Memory::Reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Address address = TakeAddresses(bytes);
  if (address != 0) {
    reserved_[address] = bytes;
  }
  return address;
}

Result Memory::FreeReserved(Address address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(address);
  const auto mapped = mappings_.lower_bound(address);
  if (found == reserved_.end() || found->second != bytes ||
      (mapped != mappings_.end() && mapped->first < address + bytes)) {
    return kInvalidValue;
  }
  reserved_.erase(found);
  GiveAddresses(address, bytes);
  return kSuccess;
}

unsigned long long Memory::Create(std::size_t bytes, Device device) {
  unsigned char* const data = MapPages(bytes, PROT_READ | PROT_WRITE);
  if (data == nullptr) {
    return 0;
  }
  Poison(data, bytes);
  const std::lock_guard lock(mutex_);
  physical_[next_handle_] = {data, bytes, device, 1};
  return next_handle_++;
}

void Memory::DropUse(unsigned long long handle) {
  const auto found = physical_.find(handle);
  if (--found->second.uses == 0) {
    munmap(found->second.data, found->second.bytes);
    physical_.erase(found);
  }
}

// "The memory will be freed when all outstanding mappings to it are unmapped
// and when all outstanding references to the handle are released"
// (cuMemRelease).
Result Memory::Release(unsigned long long handle) {
  const std::lock_guard lock(mutex_);
  if (physical_.find(handle) == physical_.end()) {
    return kInvalidValue;
  }
  DropUse(handle);
  return kSuccess;
}

Result Memory::Map(Address address, std::size_t bytes, std::size_t offset,
                   unsigned long long handle) {
  const std::lock_guard lock(mutex_);
  const auto physical = physical_.find(handle);
  const auto after = reserved_.upper_bound(address);
  if (physical == physical_.end() || after == reserved_.begin() ||
      offset != 0 || bytes > physical->second.bytes) {
    return kInvalidValue;
  }
  const auto& [begin, reserved] = *std::prev(after);
  if (address + bytes > begin + reserved || FindLocked(address) != nullptr) {
    return kInvalidValue;
  }
  Range range{Kind::kMapped,           address, bytes, physical->second.data,
              physical->second.device, nullptr};
  range.accessible = false;
  ranges_[address] = range;
  mappings_[address] = handle;
  ++physical->second.uses;
  return kSuccess;
}

Result Memory::Unmap(Address address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || ranges_[address].bytes != bytes) {
    return kInvalidValue;
  }
  DropUse(found->second);
  mappings_.erase(found);
  ranges_.erase(address);
  return kSuccess;
}

Result Memory::SetAccess(Address address, std::size_t bytes, Device device) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.kind != Kind::kMapped ||
      found->second.bytes != bytes || found->second.device != device) {
    return kInvalidValue;
  }
  found->second.accessible = true;
  return kSuccess;
}

// --- Looking up -------------------------------------------------------------

const Memory::Range* Memory::FindLocked(Address address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) {
    return nullptr;
  }
  const Range& range = std::prev(after)->second;
  return address - range.begin < range.bytes ? &range : nullptr;
}

std::optional<Memory::Range> Memory::Find(Address address) const {
  const std::lock_guard lock(mutex_);
  const Range* const range = FindLocked(address);
  return range == nullptr ? std::nullopt : std::optional(*range);
}

Window Memory::OnDevice(Address address, Device device) const {
  const auto range = Find(address);
  if (!range || !range->accessible) {
    return {};
  }
  const bool on_one_device = range->kind == Kind::kDevice ||
                             range->kind == Kind::kPool ||
                             range->kind == Kind::kMapped;
  if (on_one_device && range->device != device) {
    return {};
  }
  if (range->kind == Kind::kRegistered && !Settings::Get().same_pointers) {
    return {};  // the device has another address for it
  }
  return {range->begin, range->begin + range->bytes, range->data};
}

Memory::Place Memory::ForCopy(Address address, std::size_t bytes) const {
  const auto range = Find(address);
  if (!range) {
    return {reinterpret_cast<unsigned char*>(address), true};
  }
  if (!range->Has(address, bytes) || !range->accessible) {
    return {nullptr, false};
  }
  return {range->data + (address - range->begin), false};
}

int Memory::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(
      ranges_.begin(), ranges_.end(),
      [](const auto& one) { return one.second.kind != Kind::kAlias; }));
}

}  // namespace fake_cuda
