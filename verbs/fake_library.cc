#include "verbs/fake_library.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace ringpipe::verbs {
namespace {

FakeMachine* machine = nullptr;

// The verbs object first, so that one pointer serves for both.
struct DeviceObject {
  ibv_device verbs = {};
  FakeDevice* fake = nullptr;
};

FakeDevice& Of(ibv_device* device) {
  return *reinterpret_cast<DeviceObject*>(device)->fake;
}
FakeDevice& Of(ibv_context* context) { return Of(context->device); }

std::unique_ptr<DeviceObject> NewDevice(FakeDevice* fake) {
  auto object = std::make_unique<DeviceObject>();
  object->fake = fake;
  object->verbs.transport_type = fake->transport;
  return object;
}

ibv_device** List(const std::vector<FakeDevice*>& fakes, int* count) {
  std::vector<std::unique_ptr<DeviceObject>> objects;
  for (FakeDevice* fake : fakes) {
    objects.push_back(NewDevice(fake));
  }
  auto** list = new ibv_device*[fakes.size() + 1];
  ++machine->live;
  *count = 0;
  for (std::unique_ptr<DeviceObject>& object : objects) {
    list[(*count)++] = &object.release()->verbs;
  }
  list[*count] = nullptr;
  return list;
}

ibv_device** GetDeviceList(int* count) {
  std::vector<FakeDevice*> fakes;
  for (const auto& device : machine->devices) {
    if (device->listed) {
      fakes.push_back(device.get());
    }
  }
  return List(fakes, count);
}

ibv_device** GetSoftDeviceList(int* count) {
  return List({&machine->soft_device}, count);
}

void FreeDeviceList(ibv_device** list) {
  for (int i = 0; list[i] != nullptr; ++i) {
    delete reinterpret_cast<DeviceObject*>(list[i]);
  }
  --machine->live;
  delete[] list;
}

const char* GetDeviceName(ibv_device* device) {
  return Of(device).name.c_str();
}

ibv_context* OpenDevice(ibv_device* device) {
  if (Of(device).open_errno != 0) {
    errno = Of(device).open_errno;
    return nullptr;
  }
  auto context = std::make_unique<ibv_context>();
  // A device outlives its list while it is open.
  context->device = &NewDevice(&Of(device)).release()->verbs;
  context->async_fd = eventfd(0, EFD_CLOEXEC);
  ++machine->live;
  return context.release();
}

int CloseDevice(ibv_context* context) {
  --machine->live;
  close(context->async_fd);
  delete reinterpret_cast<DeviceObject*>(context->device);
  delete context;
  return 0;
}

int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  attr->phys_port_cnt = static_cast<std::uint8_t>(Of(context).ports.size());
  attr->max_qp_wr = Of(context).max_qp_wr;
  attr->max_qp = Of(context).max_qp;
  attr->max_cq = Of(context).max_cq;
  attr->max_qp_rd_atom = 16;
  attr->max_cqe = 4096;
  attr->max_mr = 16777216;
  attr->max_mr_size = ~std::uint64_t{0};
  attr->max_pd = 512;
  attr->max_sge = 4;
  return 0;
}

// As ibv_port_attr encodes it.
std::uint8_t SpeedPerLane(double gigabits) {
  return gigabits >= 100  ? 128
         : gigabits >= 50 ? 64
         : gigabits >= 25 ? 32
         : gigabits >= 10 ? 4
                          : 1;
}

int QueryPort(ibv_context* context, std::uint8_t port,
              _compat_ibv_port_attr* compat_attr) {
  auto* attr = reinterpret_cast<ibv_port_attr*>(compat_attr);
  if (port < 1 || port > Of(context).ports.size()) {
    return EINVAL;
  }
  const FakePort& fake = Of(context).ports[port - 1];
  attr->state = fake.state;
  attr->active_mtu = fake.mtu;
  attr->max_mtu = IBV_MTU_4096;
  attr->gid_tbl_len = static_cast<int>(fake.gids.size());
  attr->max_msg_sz = 1U << 30;
  attr->lid = fake.lid;
  attr->active_width = 2;  // 4 lanes
  attr->active_speed = SpeedPerLane(fake.gigabits_per_second / 4);
  attr->link_layer =
      fake.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  return 0;
}

int QueryGid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  const FakePort& fake = Of(context).ports[port - 1];
  if (static_cast<std::size_t>(index) >= fake.gids.size()) {
    return EINVAL;
  }
  std::memset(gid, 0, sizeof(*gid));
  inet_pton(AF_INET6, fake.gids[index].c_str(), gid->raw);
  return 0;
}

template <typename Object>
Object* New() {
  auto* const object = new Object();
  ++machine->live;
  return object;
}

template <typename Object>
int Delete(Object* object) {
  --machine->live;
  delete object;
  return 0;
}

ibv_pd* AllocPd(ibv_context* context) {
  ibv_pd* pd = New<ibv_pd>();
  pd->context = context;
  return pd;
}

ibv_mr* NewMr(ibv_pd* pd, void* address, std::size_t length, unsigned access,
              int error) {
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  machine->registered_access.push_back(access);
  ibv_mr* mr = New<ibv_mr>();
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->lkey = 7;
  mr->rkey = 8;
  return mr;
}

ibv_mr* RegMr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return NewMr(pd, address, length, static_cast<unsigned>(access),
               machine->register_errno);
}

ibv_mr* RegMrIova2(ibv_pd* pd, void* address, std::size_t length,
                   std::uint64_t iova, unsigned access) {
  const bool same = iova == reinterpret_cast<std::uintptr_t>(address);
  return NewMr(pd, address, length, access,
               same ? machine->relaxed_errno : EINVAL);
}

int ForkInit() {
  ++machine->fork_init_calls;
  return machine->fork_init_result;
}

ibv_fork_status IsForkInitialized() { return machine->fork_status; }

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  ibv_comp_channel* channel = New<ibv_comp_channel>();
  channel->context = context;
  channel->fd = eventfd(0, EFD_CLOEXEC);
  return channel;
}

int DestroyCompChannel(ibv_comp_channel* channel) {
  close(channel->fd);
  return Delete(channel);
}

int GetCqEvent(ibv_comp_channel*, ibv_cq**, void**) {
  errno = EAGAIN;
  return -1;
}

void AckCqEvents(ibv_cq*, unsigned int) {}

ibv_cq* CreateCq(ibv_context* context, int cqe, void*,
                 ibv_comp_channel* channel, int) {
  if (machine->completion_queues >= Of(context).max_cq) {
    errno = Of(context).limit_errno;
    return nullptr;
  }
  ibv_cq* cq = New<ibv_cq>();
  ++machine->completion_queues;
  cq->context = context;
  cq->channel = channel;
  cq->cqe = cqe;
  return cq;
}

int DestroyCq(ibv_cq* cq) {
  --machine->completion_queues;
  return Delete(cq);
}

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const int most = Of(pd->context).max_inline_bytes;
  if (attr->cap.max_inline_data > static_cast<unsigned>(most)) {
    errno = EINVAL;
    return nullptr;
  }
  if (machine->queue_pairs >= Of(pd->context).max_qp) {
    errno = Of(pd->context).limit_errno;
    return nullptr;
  }
  ibv_qp* qp = New<ibv_qp>();
  ++machine->queue_pairs;
  qp->context = pd->context;
  qp->qp_num = 0x123;
  return qp;
}

int DestroyQp(ibv_qp* qp) {
  --machine->queue_pairs;
  return Delete(qp);
}

int ModifyQp(ibv_qp*, ibv_qp_attr* attr, int mask) {
  machine->modifications.push_back({*attr, mask});
  return attr->qp_state == IBV_QPS_RTR ? machine->connect_errno : 0;
}

int QueryQp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) { return ENOSYS; }

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  // As the kernel's: blocks unless the descriptor was made non-blocking.
  if (machine->events.empty() && machine->async_errno != 0) {
    errno = machine->async_errno;
    return -1;
  }
  if (machine->events.empty()) {
    std::uint64_t ignored = 0;
    return read(context->async_fd, &ignored, sizeof(ignored)) > 0 ? 0 : -1;
  }
  *event = machine->events.front();
  machine->events.erase(machine->events.begin());
  return 0;
}

void AckAsyncEvent(ibv_async_event*) { ++machine->events_acknowledged; }

Library FakeTable() {
  Library library = {};
  library.get_device_list = GetDeviceList;
  library.free_device_list = FreeDeviceList;
  library.get_device_name = GetDeviceName;
  library.open_device = OpenDevice;
  library.close_device = CloseDevice;
  library.query_device = QueryDevice;
  library.query_port = QueryPort;
  library.query_gid = QueryGid;
  library.alloc_pd = AllocPd;
  library.dealloc_pd = Delete<ibv_pd>;
  library.reg_mr = RegMr;
  library.dereg_mr = Delete<ibv_mr>;
  library.create_comp_channel = CreateCompChannel;
  library.destroy_comp_channel = DestroyCompChannel;
  library.get_cq_event = GetCqEvent;
  library.ack_cq_events = AckCqEvents;
  library.create_cq = CreateCq;
  library.destroy_cq = DestroyCq;
  library.create_qp = CreateQp;
  library.modify_qp = ModifyQp;
  library.query_qp = QueryQp;
  library.destroy_qp = DestroyQp;
  library.get_async_event = GetAsyncEvent;
  library.ack_async_event = AckAsyncEvent;
  library.reg_mr_iova2 = RegMrIova2;
  library.fork_init = ForkInit;
  library.is_fork_initialized = IsForkInitialized;
  return library;
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

void WritePort(const std::filesystem::path& folder, const FakePort& port) {
  WriteFile(folder / "state", std::to_string(port.state) + ": STATE");
  WriteFile(folder / "link_layer", port.ethernet ? "Ethernet" : "InfiniBand");
  WriteFile(folder / "rate",
            std::to_string(port.gigabits_per_second) + " Gb/sec (4X)");
  for (std::size_t i = 0; i < port.gids.size(); ++i) {
    WriteFile(folder / "gids" / std::to_string(i),
              port.gids[i].empty() ? "::" : port.gids[i]);
  }
  for (std::size_t i = 0; i < port.gid_types.size(); ++i) {
    WriteFile(folder / "gid_attrs" / "types" / std::to_string(i),
              port.gid_types[i]);
  }
  for (std::size_t i = 0; i < port.gid_ndevs.size(); ++i) {
    WriteFile(folder / "gid_attrs" / "ndevs" / std::to_string(i),
              port.gid_ndevs[i]);
  }
}

std::string ReadLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> Sorted(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

FakePort ReadPort(const std::filesystem::path& folder) {
  FakePort port;
  port.state = static_cast<ibv_port_state>(
      std::strtol(ReadLine(folder / "state").c_str(), nullptr, 10));
  port.ethernet = ReadLine(folder / "link_layer") == "Ethernet";
  port.lid = static_cast<std::uint16_t>(
      std::strtol(ReadLine(folder / "lid").c_str(), nullptr, 16));
  port.gigabits_per_second =
      std::strtod(ReadLine(folder / "rate").c_str(), nullptr);
  port.mtu = port.ethernet ? IBV_MTU_1024 : IBV_MTU_4096;
  for (std::size_t i = 0; i < Sorted(folder / "gids").size(); ++i) {
    port.gids.push_back(ReadLine(folder / "gids" / std::to_string(i)));
  }
  return port;
}

std::string NewFolder() {
  const char* parent = std::getenv("TEST_TMPDIR");
  std::string path =
      std::string(parent != nullptr ? parent : "/tmp") + "/fake_sysfs_XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : "";
}

}  // namespace

FakeMachine::FakeMachine()
    : library_(std::make_shared<Library>(FakeTable())),
      folder_(NewFolder()),
      sysfs_class_(folder_) {
  Library old = FakeTable();
  old.reg_mr_iova2 = nullptr;
  old.fork_init = nullptr;
  old.is_fork_initialized = nullptr;
  old_library_ = std::make_shared<Library>(old);
  Library soft = old;
  soft.get_device_list = GetSoftDeviceList;
  soft_ = std::make_shared<Library>(soft);
  soft_device.name = "soft0";
  machine = this;
}

FakeMachine::~FakeMachine() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  machine = nullptr;
}

void FakeMachine::Add(FakeDevice device) {
  const auto device_folder = std::filesystem::path(sysfs_class_) / device.name;
  if (device.in_sysfs) {
    WriteFile(device_folder / "node_type",
              device.transport == IBV_TRANSPORT_IWARP ? "4: RNIC" : "1: CA");
  }
  int number = 0;
  for (const FakePort& port : device.ports) {
    ++number;
    if (device.in_sysfs) {
      WritePort(device_folder / "ports" / std::to_string(number), port);
    }
  }
  devices.push_back(std::make_unique<FakeDevice>(std::move(device)));
}

void FakeMachine::AddRecorded(const std::string& sysfs_class) {
  sysfs_class_ = sysfs_class;
  for (const std::string& name : Sorted(sysfs_class)) {
    const auto folder = std::filesystem::path(sysfs_class) / name;
    FakeDevice device;
    device.name = name;
    device.transport = ReadLine(folder / "node_type") == "4: RNIC"
                           ? IBV_TRANSPORT_IWARP
                           : IBV_TRANSPORT_IB;
    device.ports.clear();
    for (const std::string& number : Sorted(folder / "ports")) {
      device.ports.push_back(ReadPort(folder / "ports" / number));
    }
    devices.push_back(std::make_unique<FakeDevice>(std::move(device)));
  }
}

}  // namespace ringpipe::verbs
