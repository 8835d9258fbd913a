// What the cache costs above the seam (Sources/Hutch/Storage): puts and gets through both tiers on
// a store in memory that commits at once (FlatStore.swift), beside the same calls of that store
// alone. The difference is the cache's. Nanoseconds per call; each figure is the median of rounds
// that take turns. Two figures are kept to: a put costs at most 350 ns above the seam, a hit that
// memory does not have at most 150 ns.
//
// It is compiled together with the engine, as one module, the way the library is:
//
//     swiftc -enable-experimental-feature Embedded \
//     -enable-experimental-feature RawLayout -wmo -parse-as-library -swift-version 6 -Osize \
//       -Xllvm -sil-disable-pass=closure-specialize \
//       -Xcc -fmodule-map-file=include/module.modulemap \
//       -Xcc -fmodule-map-file=Sources/CSystem/module.modulemap \
//       -Xcc -fmodule-map-file=Sources/CSQLite/module.modulemap -I include \
//       $(find Sources/Hutch -name '*.swift') Tests/Benchmarks/seam/*.swift \
//       -use-ld=lld -lsqlite3 -lm -o seam
//     ./seam [ENTRIES] [ROUNDS]       100000 and 15 by default
import CSystem

/// seam [ENTRIES] [ROUNDS]
@_cdecl("main")
func main(
  _ count: Int32, _ words: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> Int32 {
  do throws(Failure) {
    let entries = count > 1 ? Int(atoi(words[1]!)) : 100_000
    try Seam(entries).run(count > 2 ? Int(atoi(words[2]!)) : 15)
    return 0
  } catch {
    puts(UnsafeRawPointer(error.words).assumingMemoryBound(to: CChar.self))
    return 1
  }
}

struct Seam {
  private static let valueSize = 100

  private let entries: Int
  private let keys: UnsafeMutablePointer<UInt64>
  private let store: FlatStore
  private let opening: Opening
  private let blocks: UnsafeMutablePointer<UnownedBlock>
  private let value: Bytes

  init(_ entries: Int) throws(Failure) {
    self.entries = entries
    var room = 1024
    while room < 2 * entries { room *= 2 }
    let store = try FlatStore(room: room)
    self.store = store
    keys = try Allocation.array(UInt64.self, entries)
    // Distinct, in an order that no cache line knows.
    for i in 0..<entries { keys[i] = UInt64(i) &* 0x9E37_79B9_7F4A_7C15 }
    value = Bytes(UnsafeMutableRawBufferPointer(
      start: try Allocation.bytes(Seam.valueSize), count: Seam.valueSize))
    memset(UnsafeMutableRawPointer(mutating: value.baseAddress!), 7, Seam.valueSize)
    let options = OpenOptions()
    options.disk.limits = TierLimits()
    options.tasks.workers = 0
    let opened: (opening: Opening, differs: Bool) = try Seam.withDirectory {
      (path) throws(Failure) in
      try Opening.onDirectory(
        path, options, clock: Clock(function: nil, context: nil, release: nil)
      ) { (_, _, _) throws(Failure) in store }
    }
    opening = opened.opening
    blocks = UnsafeMutableRawPointer(try Allocation.array(UInt.self, entries))
      .bindMemory(to: UnownedBlock.self, capacity: entries)
    for i in 0..<entries {
      let key = Bytes(start: keys + i, count: 8)
      var record = Record()
      record.version = 1
      record.created = 1
      (blocks + i).initialize(
        to: try Block.copying(
          key: key, value: value, extended: Extended(), record: record, wantsChecksum: true
        ).leak())
    }
  }

  private static func withDirectory<R>(
    _ body: (UnsafePointer<CChar>) throws(Failure) -> R
  ) throws(Failure) -> R {
    let path = try Allocation.bytes(64).bindMemory(to: CChar.self, capacity: 64)
    strcpy(path, "/tmp/hutch-seam-XXXXXX")
    guard mkdtemp(path) != nil else { throw .system("cannot make a directory") }
    return try body(path)
  }

  private enum Call: Int {
    case write, putOnDisk, put, read, getOnDisk
  }

  func run(_ rounds: Int) throws(Failure) {
    let calls = [Call.write, .putOnDisk, .put, .read, .getOnDisk]
    var times: [[Int64]] = [[], [], [], [], []]
    for round in 0..<(rounds + 1) {
      for call in calls {
        let time = try time(call)
        // The first round fills the store and the tier.
        if round > 0 { times[call.rawValue].append(time) }
      }
    }
    func median(_ call: Call) -> Int64 {
      let sorted = times[call.rawValue].sorted()
      return sorted[sorted.count / 2]
    }
    func line(_ words: StaticString, _ call: Call, besides alone: Call?) {
      print(words, terminator: "")
      printNumber(median(call))
      if let alone { printNumber(median(call) - median(alone)) }
      print("")
    }
    print("nanoseconds per call    median   above the seam")
    line("store alone: put     ", .write, besides: nil)
    line("put, disk view       ", .putOnDisk, besides: .write)
    line("put, both tiers      ", .put, besides: .write)
    line("store alone: get     ", .read, besides: nil)
    line("get, disk view       ", .getOnDisk, besides: .read)
  }

  /// Right-aligned; what is printed are times, which fit.
  private func printNumber(_ number: Int64) {
    var rest = number.magnitude
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 24) { text in
      text.initialize(repeating: 0x20)
      text[23] = 0
      var end = 22
      repeat {
        text[end] = CChar(0x30 + rest % 10)
        rest /= 10
        end -= 1
      } while rest > 0
      if number < 0 { text[end] = 0x2D }
      for place in 12..<23 { putchar(Int32(text[place])) }
    }
  }

  /// Nanoseconds per call, over all entries.
  private func time(_ call: Call) throws(Failure) -> Int64 {
    let cache = opening.cache
    let moment = cache.clock.moment().read
    let spec = Cache.PutSpec()
    let begin = Clock.read(CLOCK_MONOTONIC)
    for i in 0..<entries {
      let key = Bytes(start: keys + i, count: 8)
      switch call {
      case .write:
        var write = StoreWrite(.put, blocks[i], store.hash.entry(key))
        store.write(&write)
      case .putOnDisk:
        _ = try cache.put(key, value, spec, if: .always, in: .disk)
      case .put:
        _ = try cache.put(key, value, spec, if: .always, in: .whole)
      case .read:
        guard try store.get(key, store.hash.entry(key), at: moment, isAccess: true) != nil else {
          throw Failure(.notFound, "an entry is missing")
        }
      case .getOnDisk:
        guard try cache.get(key, in: .disk) != nil else {
          throw Failure(.notFound, "an entry is missing")
        }
      }
    }
    return (Clock.read(CLOCK_MONOTONIC) - begin) / Int64(entries)
  }
}
