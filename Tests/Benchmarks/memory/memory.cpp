// memory - the memory tier beside the caches that a C or C++ program would use instead
//
//   memory [entries] [rounds] [other libhutch.so]
//
// 16-byte keys, 100-byte values that are copied out. First each contender in a process of its own:
// memory, and how long single calls take while it grows, while it evicts and, if it can, while
// another thread trims it and after it was cleared. Then all are filled and take turns, round by
// round; what is printed are medians over the rounds in nanoseconds of CPU time per operation, and
// the ratio of Hutch's to them: below 1, Hutch is faster. With two threads it is the time on the
// clock, and CPU time below it. A cache that is filled, and then evicts with each put, is made anew
// in each round. Other load on the machine disturbs all alike. Peers come from Debian's packages
// and are left out where those are missing; a build of libhutch that is given takes part as one.
#include "hutch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#if __has_include(<tkrzw_dbm_cache.h>)
#include <tkrzw_dbm_cache.h>
#define HAVE_TKRZW 1
#endif
#if __has_include(<kccachedb.h>)
#include <kccachedb.h>
#define HAVE_KYOTO 1
#endif
#if __has_include(<leveldb/cache.h>)
#include <leveldb/cache.h>
#define HAVE_LEVELDB 1
#endif
#if __has_include(<rocksdb/cache.h>)
#include <rocksdb/cache.h>
#define HAVE_ROCKSDB 1
#endif

namespace {

constexpr size_t kKey = 16, kValue = 100;

struct Key {
  char bytes[kKey];
  explicit Key(uint64_t number) {
    uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ull;
    memcpy(bytes, &mixed, 8);
    memcpy(bytes + 8, &number, 8);
  }
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual void put(const Key &key, const char *value) = 0;
  // Copies the value out; whether it was there.
  virtual bool get(const Key &key, char *value) = 0;
  // Comes down to so many entries; whether it can.
  virtual bool trim(size_t) { return false; }
  // Removes every entry; whether it can.
  virtual bool clear() { return false; }
};

// The calls of one build of the library.
struct Build {
  decltype(&hutch_open) open;
  decltype(&hutch_close) close;
  decltype(&hutch_put) put;
  decltype(&hutch_get_into) get_into;
  decltype(&hutch_get_many) get_many;
  decltype(&hutch_batch_release) batch_release;
  decltype(&hutch_trim) trim;
  decltype(&hutch_clear) clear;
};

const Build kLinked = {hutch_open,     hutch_close,         hutch_put,  hutch_get_into,
                       hutch_get_many, hutch_batch_release, hutch_trim, hutch_clear};
Build other;

bool load_other(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr) {
    fprintf(stderr, "memory: %s\n", dlerror());
    return false;
  }
  auto take = [&](auto &call, const char *name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    if (call == nullptr) fprintf(stderr, "memory: %s has no %s\n", path, name);
    return call != nullptr;
  };
  return take(other.open, "hutch_open") && take(other.close, "hutch_close") &&
         take(other.put, "hutch_put") && take(other.get_into, "hutch_get_into") &&
         take(other.get_many, "hutch_get_many") &&
         take(other.batch_release, "hutch_batch_release") && take(other.trim, "hutch_trim") &&
         take(other.clear, "hutch_clear");
}

class Hutch : public Contender {
 public:
  // No capacity: no limit. A directory: two tiers.
  explicit Hutch(size_t capacity, const char *directory = nullptr, const Build &build = kLinked)
      : build_(build) {
    hutch_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.memory.cost = options.memory.max_entry = HUTCH_NO_LIMIT;
    options.memory.count = capacity ? capacity : HUTCH_NO_LIMIT;
    if (build_.open(directory, &options, &cache_) != HUTCH_OK) abort();
  }
  // In the order of evictions, and then by the time of the last read.
  bool trim(size_t count) override {
    hutch_trim_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.struct_size = sizeof spec;
    spec.kind = HUTCH_TRIM_TO_COUNT;
    spec.amount = count;
    if (build_.trim(cache_, &spec, nullptr) != HUTCH_OK) return false;
    spec.kind = HUTCH_TRIM_LEAST_RECENT;
    spec.amount = count * 190;  // An entry is charged some 206 bytes.
    return build_.trim(cache_, &spec, nullptr) == HUTCH_OK;
  }
  bool clear() override { return build_.clear(cache_) == HUTCH_OK; }
  ~Hutch() override { build_.close(cache_); }
  void put(const Key &key, const char *value) override {
    if (build_.put(cache_, key.bytes, kKey, value, kValue, nullptr, nullptr) != HUTCH_OK) abort();
  }
  bool get(const Key &key, char *value) override {
    size_t size;
    return build_.get_into(cache_, key.bytes, kKey, value, kValue, &size) == HUTCH_OK;
  }
  // One call for so many keys, as far as the array goes.
  void get_many(const uint32_t *numbers, size_t count, size_t batch) {
    std::vector<Key> keys(batch, Key(0));
    std::vector<const void *> starts(batch);
    std::vector<size_t> sizes(batch, kKey);
    for (size_t i = 0; i < batch; i++) starts[i] = keys[i].bytes;
    for (size_t i = 0; i + batch <= count; i += batch) {
      for (size_t k = 0; k < batch; k++) keys[k] = Key(numbers[i + k]);
      hutch_batch *got;
      if (build_.get_many(cache_, starts.data(), sizes.data(), batch, &got) != HUTCH_OK) abort();
      build_.batch_release(got);
    }
  }

 private:
  const Build &build_;
  hutch_cache *cache_;
};

class Standard : public Contender {
 public:
  explicit Standard(size_t capacity) : capacity_(capacity) { map_.reserve(capacity); }
  void put(const Key &key, const char *value) override {
    std::string name(key.bytes, kKey);
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = map_.find(name);
    if (found != map_.end()) {
      found->second->second.assign(value, kValue);
      list_.splice(list_.begin(), list_, found->second);
      return;
    }
    list_.emplace_front(name, std::string(value, kValue));
    map_.emplace(std::move(name), list_.begin());
    if (map_.size() > capacity_) {
      map_.erase(list_.back().first);
      list_.pop_back();
    }
  }
  bool get(const Key &key, char *value) override {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = map_.find(std::string(key.bytes, kKey));
    if (found == map_.end()) return false;
    list_.splice(list_.begin(), list_, found->second);
    memcpy(value, found->second->second.data(), kValue);
    return true;
  }

 private:
  using List = std::list<std::pair<std::string, std::string>>;
  size_t capacity_;
  std::mutex mutex_;
  List list_;
  std::unordered_map<std::string, List::iterator> map_;
};

#ifdef HAVE_TKRZW
class Tkrzw : public Contender {
 public:
  explicit Tkrzw(size_t capacity) : db_(static_cast<int64_t>(capacity), -1) {}
  void put(const Key &key, const char *value) override {
    db_.Set(std::string_view(key.bytes, kKey), std::string_view(value, kValue)).OrDie();
  }
  bool get(const Key &key, char *value) override {
    thread_local std::string out;
    if (!db_.Get(std::string_view(key.bytes, kKey), &out).IsOK()) return false;
    memcpy(value, out.data(), kValue);
    return true;
  }

 private:
  tkrzw::CacheDBM db_;
};
#endif

#ifdef HAVE_KYOTO
class Kyoto : public Contender {
 public:
  explicit Kyoto(size_t capacity) {
    db_.tune_buckets(static_cast<int64_t>(capacity * 2));
    db_.cap_count(static_cast<int64_t>(capacity));
    if (!db_.open("*")) abort();
  }
  void put(const Key &key, const char *value) override { db_.set(key.bytes, kKey, value, kValue); }
  bool get(const Key &key, char *value) override {
    return db_.get(key.bytes, kKey, value, kValue) == static_cast<int32_t>(kValue);
  }

 private:
  kyotocabinet::CacheDB db_;
};
#endif

#ifdef HAVE_LEVELDB
class Level : public Contender {
 public:
  explicit Level(size_t capacity) : cache_(leveldb::NewLRUCache(capacity)) {}
  void put(const Key &key, const char *value) override {
    char *copy = new char[kValue];
    memcpy(copy, value, kValue);
    cache_->Release(cache_->Insert(
        leveldb::Slice(key.bytes, kKey), copy, 1,
        [](const leveldb::Slice &, void *old) { delete[] static_cast<char *>(old); }));
  }
  bool get(const Key &key, char *value) override {
    leveldb::Cache::Handle *handle = cache_->Lookup(leveldb::Slice(key.bytes, kKey));
    if (handle == nullptr) return false;
    memcpy(value, cache_->Value(handle), kValue);
    cache_->Release(handle);
    return true;
  }

 private:
  std::unique_ptr<leveldb::Cache> cache_;
};
#endif

#ifdef HAVE_ROCKSDB
class Rocks : public Contender {
 public:
  explicit Rocks(size_t capacity)
      : cache_(rocksdb::HyperClockCacheOptions(capacity, 1, -1, false, nullptr,
                                               rocksdb::kDontChargeCacheMetadata)
                   .MakeSharedCache()) {}
  void put(const Key &key, const char *value) override {
    char *copy = new char[kValue];
    memcpy(copy, value, kValue);
    rocksdb::Status status = cache_->Insert(
        rocksdb::Slice(key.bytes, kKey), copy, 1,
        [](const rocksdb::Slice &, void *old) { delete[] static_cast<char *>(old); });
    if (!status.ok()) delete[] copy;
  }
  bool get(const Key &key, char *value) override {
    rocksdb::Cache::Handle *handle = cache_->Lookup(rocksdb::Slice(key.bytes, kKey));
    if (handle == nullptr) return false;
    memcpy(value, cache_->Value(handle), kValue);
    cache_->Release(handle);
    return true;
  }

 private:
  std::shared_ptr<rocksdb::Cache> cache_;
};
#endif

struct Kind {
  const char *name;
  std::function<std::unique_ptr<Contender>(size_t)> make;
};

template <class C>
Kind kind(const char *name) {
  return {name, [](size_t capacity) { return std::make_unique<C>(capacity); }};
}

std::vector<Kind> kinds() {
  std::vector<Kind> all = {
      kind<Hutch>("Hutch"),
#ifdef HAVE_TKRZW
      kind<Tkrzw>("tkrzw CacheDBM"),
#endif
#ifdef HAVE_LEVELDB
      kind<Level>("LevelDB LRUCache"),
#endif
#ifdef HAVE_ROCKSDB
      kind<Rocks>("RocksDB HyperClock"),
#endif
#ifdef HAVE_KYOTO
      kind<Kyoto>("Kyoto CacheDB"),
#endif
      kind<Standard>("std::unordered_map"),
  };
  if (other.open != nullptr)
    all.push_back({"another Hutch", [](size_t capacity) {
                     return std::make_unique<Hutch>(capacity, nullptr, other);
                   }});
  return all;
}

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

uint64_t next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

std::vector<uint32_t> uniform(size_t count, uint32_t range, uint64_t seed) {
  std::vector<uint32_t> keys(count);
  for (uint32_t &key : keys) key = static_cast<uint32_t>(next(&seed) % range);
  return keys;
}

// Zipf with exponent .99 (Gray et al., 1994), ranks scattered over the range.
std::vector<uint32_t> zipf(size_t count, uint32_t range, uint64_t seed) {
  const double theta = .99;
  double zeta = 0;
  for (uint32_t i = 1; i <= range; i++) zeta += 1 / pow(i, theta);
  const double alpha = 1 / (1 - theta);
  const double eta = (1 - pow(2.0 / range, 1 - theta)) / (1 - (1 + pow(.5, theta)) / zeta);
  std::vector<uint32_t> keys(count);
  for (uint32_t &key : keys) {
    double u = static_cast<double>(next(&seed) >> 11) * 0x1p-53;
    double uz = u * zeta;
    uint64_t rank = uz < 1 ? 0 : uz < 1 + pow(.5, theta) ? 1
                        : static_cast<uint64_t>(range * pow(eta * u - eta + 1, alpha));
    key = static_cast<uint32_t>(rank * 2654435761u % range);
  }
  return keys;
}

enum class Work { get, overwrite, get_or_set };

void work(Contender &cache, Work kind, const uint32_t *keys, size_t count, uint32_t offset) {
  char value[kValue] = {1};
  for (size_t i = 0; i < count; i++) {
    Key key(keys[i] + offset);
    switch (kind) {
      case Work::get: cache.get(key, value); break;
      case Work::overwrite: cache.put(key, value); break;
      case Work::get_or_set:
        if (!cache.get(key, value)) cache.put(key, value);
    }
  }
}

// Nanoseconds per operation.
struct Cost {
  double wall, cpu;
};

Cost measure(Contender &cache, Work kind, const std::vector<uint32_t> &keys, int threads,
             uint32_t offset = 0) {
  double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  auto cost = [&](size_t count) {
    double each = 1e9 / static_cast<double>(count);
    return Cost{(seconds(CLOCK_MONOTONIC) - start) * each,
                (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * each};
  };
  if (threads == 1) {
    work(cache, kind, keys.data(), keys.size(), offset);
    return cost(keys.size());
  }
  struct Part {
    Contender *cache;
    Work kind;
    const uint32_t *keys;
    size_t count;
    uint32_t offset;
  };
  std::vector<pthread_t> ids(static_cast<size_t>(threads));
  std::vector<Part> parts;
  size_t share = keys.size() / ids.size();
  for (size_t t = 0; t < ids.size(); t++)
    parts.push_back({&cache, kind, keys.data() + t * share, share, offset});
  for (size_t t = 0; t < ids.size(); t++) {
    pthread_create(&ids[t], nullptr, [](void *raw) -> void * {
      Part *part = static_cast<Part *>(raw);
      work(*part->cache, part->kind, part->keys, part->count, part->offset);
      return nullptr;
    }, &parts[t]);
  }
  for (pthread_t id : ids) pthread_join(id, nullptr);
  return cost(share * ids.size());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

long resident() {
  long total = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%ld %ld", &total, &pages) != 2) abort();
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

void fill(Contender &cache, size_t entries, size_t first = 0) {
  char value[kValue] = {1};
  for (size_t i = first; i < first + entries; i++) cache.put(Key(i), value);
}

// How long single calls took, in microseconds.
struct Tail {
  std::vector<float> puts, gets;

  explicit Tail(size_t count) : puts(count, 1), gets(count, 1) { clear(); }
  void clear() {
    puts.clear();
    gets.clear();
  }
  static double percentile(std::vector<float> &times, double part) {
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return times[times.size() - 1 - static_cast<size_t>((1 - part) * static_cast<double>(times.size()))];
  }
  // A put of the key, and a get of one that was put before.
  void step(Contender &cache, uint64_t key, uint64_t other) {
    char value[kValue] = {1};
    double start = seconds(CLOCK_MONOTONIC);
    cache.put(Key(key), value);
    double middle = seconds(CLOCK_MONOTONIC);
    cache.get(Key(other), value);
    puts.push_back(static_cast<float>((middle - start) * 1e6));
    gets.push_back(static_cast<float>((seconds(CLOCK_MONOTONIC) - middle) * 1e6));
  }
  void print() {
    printf("%9.1f %9.1f", percentile(puts, .9999), percentile(gets, .9999));
    fflush(stdout);
    clear();
  }
};

// In a process of its own: bytes of memory per entry beyond key and value, and the longest of ten
// thousand calls in each state.
void apart(const Kind &kind, size_t entries) {
  fflush(stdout);
  if (fork() == 0) {
    Tail tail(2 * entries);
    uint64_t seed = 99;
    long before = resident();
    std::unique_ptr<Contender> cache = kind.make(entries);
    for (size_t i = 0; i < entries; i++) tail.step(*cache, i, next(&seed) % (i + 1));
    double bytes = static_cast<double>(resident() - before) / static_cast<double>(entries);
    printf("%-20s %8.1f ", kind.name, bytes - kKey - kValue);
    tail.print();
    for (size_t i = entries; i < 2 * entries; i++) tail.step(*cache, i, i - next(&seed) % entries);
    tail.print();
    struct Trim {
      Contender *cache;
      size_t entries;
      std::atomic<bool> ended;
      bool can;
    } trim = {cache.get(), entries, {false}, false};
    pthread_t id;
    pthread_create(&id, nullptr, [](void *raw) -> void * {
      Trim *trim = static_cast<Trim *>(raw);
      trim->can = true;
      for (int part = 9; part > 0 && trim->can; part--)
        trim->can = trim->cache->trim(trim->entries / 10 * static_cast<size_t>(part));
      trim->ended = true;
      return nullptr;
    }, &trim);
    uint64_t i = 2 * entries;
    while (!trim.ended && tail.puts.size() < 2 * entries) {
      tail.step(*cache, i, i - next(&seed) % entries);
      i++;
    }
    pthread_join(id, nullptr);
    if (trim.can) tail.print();
    if (cache->clear()) {
      for (size_t key = 0; key < entries; key++) tail.step(*cache, key, next(&seed) % (key + 1));
      tail.print();
    }
    printf("\n");
    fflush(stdout);
    _exit(0);
  }
  wait(nullptr);
}

// What two threads gain on reads of random lines that nothing locks.
double free_scaling() {
  size_t count = size_t(1) << 27;
  std::vector<uint32_t> memory(count, 1);
  auto walk = [&](uint64_t seed) {
    uint64_t sum = 0;
    for (int i = 0; i < 3000000; i++) sum += memory[(next(&seed) + sum % 2) % count];
    return sum;
  };
  double start = seconds(CLOCK_MONOTONIC);
  volatile uint64_t sink = walk(1);
  double one = seconds(CLOCK_MONOTONIC) - start;
  start = seconds(CLOCK_MONOTONIC);
  pthread_t id;
  std::function<void()> other = [&] { sink = walk(2); };
  pthread_create(&id, nullptr, [](void *raw) -> void * {
    (*static_cast<std::function<void()> *>(raw))();
    return nullptr;
  }, &other);
  volatile uint64_t mine = walk(3);
  (void)mine;
  pthread_join(id, nullptr);
  return 2 * one / (seconds(CLOCK_MONOTONIC) - start);
}

// What a get costs in a batch of 32, per key, and alone: the batch makes a reference to each value,
// and hutch_get_into copies the value out.
void batches(size_t entries, int rounds) {
  Hutch cache(2 * entries);
  fill(cache, entries);
  std::vector<double> one, many;
  for (int round = 0; round < rounds; round++) {
    std::vector<uint32_t> keys =
        uniform(entries, static_cast<uint32_t>(entries), static_cast<uint64_t>(round) + 1);
    one.push_back(measure(cache, Work::get, keys, 1).cpu);
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    cache.get_many(keys.data(), keys.size(), 32);
    many.push_back((seconds(CLOCK_PROCESS_CPUTIME_ID) - start) * 1e9 /
                   static_cast<double>(keys.size()));
  }
  printf("hutch_get_many of 32 keys %.0f ns a key, hutch_get_into %.0f ns: %.2f\n", median(many),
         median(one), median(many) / median(one));
}

// What a hit in memory costs where there is a disk tier below.
void composed(int rounds) {
  char directory[] = "/tmp/hutch-memory-XXXXXX";
  if (mkdtemp(directory) == nullptr) abort();
  {
    Hutch alone(10000), both(10000, directory);
    fill(alone, 1000);
    fill(both, 1000);
    std::vector<double> a, b;
    for (int round = 0; round < 3 * rounds; round++) {
      std::vector<uint32_t> keys = uniform(1000000, 1000, static_cast<uint64_t>(round) + 1);
      a.push_back(measure(alone, Work::get, keys, 1).cpu);
      b.push_back(measure(both, Work::get, keys, 1).cpu);
    }
    printf("a hot get from memory alone %.1f ns, from the memory of two tiers %.1f ns\n", median(a),
           median(b));
  }
  std::string command = std::string("rm -rf ") + directory;
  if (system(command.c_str()) != 0) abort();
}

}  // namespace

int main(int argc, char **argv) {
  const size_t entries = argc > 1 ? strtoul(argv[1], nullptr, 10) : 1000000;
  const int rounds = argc > 2 ? atoi(argv[2]) : 5;
  if (argc > 3 && !load_other(argv[3])) return 1;
  const size_t operations = entries;
  const uint32_t range = static_cast<uint32_t>(entries);
  std::vector<Kind> all = kinds();

  printf("%zu entries: bytes beyond key and value, and p99.99 in us\n"
         "%-20s %8s %19s%19s%19s%19s\n%-20s %8s %9s %9s%9s %9s%9s %9s%9s %9s\n", entries, "", "",
         "growing", "evicting", "trimming", "after a clear", "", "bytes +", "put", "get", "put",
         "get", "put", "get", "put", "get");
  for (const Kind &kind : all) apart(kind, entries);
  apart({"Hutch, no limit", [](size_t) { return std::make_unique<Hutch>(0); }}, entries);

  struct Test {
    const char *name;
    Work work;
    bool is_zipf;
    int threads;
    uint32_t offset;
    bool is_hot;
    bool is_small;
  };
  const Test tests[] = {
      {"get uniform", Work::get, false, 1, 0, false, false},
      {"get zipf .99", Work::get, true, 1, 0, false, false},
      {"get hot (1000)", Work::get, false, 1, 0, true, false},
      {"miss", Work::get, false, 1, range, false, false},
      {"overwrite", Work::overwrite, false, 1, 0, false, false},
      {"get-or-set 10 %", Work::get_or_set, true, 1, 0, false, true},
      {"get uniform x2", Work::get, false, 2, 0, false, false},
      {"get hot x2", Work::get, false, 2, 0, true, false},
      {"get zipf x2", Work::get, true, 2, 0, false, false},
      {"overwrite x2", Work::overwrite, false, 2, 0, false, false},
      {"get-or-set x2", Work::get_or_set, true, 2, 0, false, true},
  };
  const size_t test_count = sizeof tests / sizeof *tests;
  std::vector<std::unique_ptr<Contender>> full, small;
  for (const Kind &kind : all) {
    full.push_back(kind.make(entries * 2));
    fill(*full.back(), entries);
    small.push_back(kind.make(entries / 10));
    work(*small.back(), Work::get_or_set, zipf(operations, range, 77).data(), operations, 0);
  }
  std::vector<std::vector<std::vector<double>>> times(
      test_count, std::vector<std::vector<double>>(all.size()));
  auto cpu = times;
  std::vector<std::vector<double>> inserts(all.size()), evictions(all.size());
  std::vector<double> scaling;
  for (int round = 0; round < rounds; round++) {
    uint64_t seed = static_cast<uint64_t>(round) * 7919 + 1;
    std::vector<uint32_t> flat = uniform(operations, range, seed);
    std::vector<uint32_t> skewed = zipf(operations, range, seed);
    std::vector<uint32_t> hot = uniform(operations, 1000, seed);
    for (size_t t = 0; t < test_count; t++) {
      const std::vector<uint32_t> &keys =
          tests[t].is_hot ? hot : tests[t].is_zipf ? skewed : flat;
      for (size_t c = 0; c < all.size(); c++) {
        size_t turn = (c + static_cast<size_t>(round)) % all.size();
        Contender &cache = tests[t].is_small ? *small[turn] : *full[turn];
        Cost cost = measure(cache, tests[t].work, keys, tests[t].threads, tests[t].offset);
        times[t][turn].push_back(tests[t].threads == 1 ? cost.cpu : cost.wall);
        cpu[t][turn].push_back(cost.cpu);
      }
    }
    for (size_t c = 0; c < all.size(); c++) {
      size_t turn = (c + static_cast<size_t>(round)) % all.size();
      std::unique_ptr<Contender> fresh = all[turn].make(entries);
      double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
      fill(*fresh, entries);
      double middle = seconds(CLOCK_PROCESS_CPUTIME_ID);
      fill(*fresh, entries, entries);
      double each = 1e9 / static_cast<double>(entries);
      inserts[turn].push_back((middle - start) * each);
      evictions[turn].push_back((seconds(CLOCK_PROCESS_CPUTIME_ID) - middle) * each);
    }
    scaling.push_back(free_scaling());
  }
  printf("\nns per operation, and the ratio of Hutch's to it\n%-20s", "");
  for (const Kind &kind : all) printf(" %18s", kind.name);
  printf("\n");
  auto line = [&](const char *name, std::vector<std::vector<double>> &of) {
    printf("%-20s", name);
    double ours = median(of[0]);
    for (size_t c = 0; c < all.size(); c++) {
      double theirs = median(of[c]);
      printf("    %8.0f (%.2f)", theirs, ours / theirs);
    }
    printf("\n");
  };
  for (size_t t = 0; t < test_count; t++) {
    line(tests[t].name, times[t]);
    if (tests[t].threads > 1) line("  CPU", cpu[t]);
  }
  line("insert", inserts);
  line("evicting put", evictions);
  auto gain = [&](const char *one, const char *two) {
    auto ours = [&](const char *name) {
      size_t t = 0;
      while (strcmp(tests[t].name, name) != 0) t++;
      return median(times[t][0]);
    };
    return ours(one) / ours(two);
  };
  printf("\nwith two threads lock-free random reads gain %.2f; Hutch's gets: uniform %.2f, zipf "
         "%.2f, hot %.2f\n",
         median(scaling), gain("get uniform", "get uniform x2"), gain("get zipf .99", "get zipf x2"),
         gain("get hot (1000)", "get hot x2"));
  full.clear();
  small.clear();
  batches(entries, rounds);
  composed(rounds);
  return 0;
}
