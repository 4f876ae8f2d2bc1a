#include "verbs/soft/soft_library.h"

#include <array>
#include <mutex>
#include <utility>

#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

// The functions of a Library have no argument that says which library was
// meant, so its options must hang on the one thing that it hands out: its
// device. Each set of options has a device, and a get_device_list of its own.
constexpr std::size_t kMaxDevices = 32;

struct Devices {
  std::mutex mutex;
  std::array<SoftDevice, kMaxDevices> all;
  std::array<int, kMaxDevices> users = {};  // libraries; 0: free
};

Devices& ProcessDevices() {
  static Devices* const devices = new Devices;  // outlives other statics
  return *devices;
}

template <std::size_t kDevice>
ibv_device** GetDeviceList(int* count) {
  return MakeDeviceList(&ProcessDevices().all[kDevice], count);
}

using ListFunction = ibv_device** (*)(int*);

template <std::size_t... kIndexes>
constexpr std::array<ListFunction, kMaxDevices> ListFunctions(
    std::index_sequence<kIndexes...>) {
  return {GetDeviceList<kIndexes>...};
}

constexpr auto kListFunctions =
    ListFunctions(std::make_index_sequence<kMaxDevices>());

constexpr Library kLibrary = {
    .get_device_list = nullptr,  // by device
    .free_device_list = FreeDeviceList,
    .get_device_name = GetDeviceName,
    .open_device = OpenDevice,
    .close_device = CloseDevice,
    .query_device = QueryDevice,
    .query_port = QueryPort,
    .query_gid = QueryGid,
    .alloc_pd = AllocPd,
    .dealloc_pd = DeallocPd,
    .reg_mr = RegMr,
    .dereg_mr = DeregMr,
    .create_comp_channel = CreateCompChannel,
    .destroy_comp_channel = DestroyCompChannel,
    .get_cq_event = GetCqEvent,
    .ack_cq_events = AckCqEvents,
    .create_cq = CreateCq,
    .destroy_cq = DestroyCq,
    .create_qp = CreateQp,
    .modify_qp = ModifyQp,
    .query_qp = QueryQp,
    .destroy_qp = DestroyQp,
    .get_async_event = GetAsyncEvent,
    .ack_async_event = AckAsyncEvent,
    .allocate = Allocate,
    .free = Free,
};

// The device for these options; kMaxDevices: none is left.
std::size_t TakeDevice(const Options& options) {
  Devices& devices = ProcessDevices();
  std::lock_guard lock(devices.mutex);
  std::size_t found = kMaxDevices;
  for (std::size_t i = 0; i < kMaxDevices; ++i) {
    if (devices.users[i] > 0 && devices.all[i].options == options) {
      ++devices.users[i];  // others read it, without the mutex
      return i;
    }
    if (devices.users[i] == 0 && found == kMaxDevices) {
      found = i;
    }
  }
  if (found < kMaxDevices) {
    devices.users[found] = 1;
    devices.all[found].options = options;
  }
  return found;
}

}  // namespace

std::shared_ptr<const Library> CreateSoftLibrary(const Options& options) {
  const std::size_t device = TakeDevice(options);
  if (device == kMaxDevices) {
    return nullptr;
  }
  auto* library = new Library(kLibrary);
  library->get_device_list = kListFunctions[device];
  return std::shared_ptr<const Library>(library, [device](const Library* gone) {
    delete gone;
    Devices& devices = ProcessDevices();
    std::lock_guard lock(devices.mutex);
    --devices.users[device];
  });
}

}  // namespace ringpipe::verbs::soft
