import CHutch
import CSystem
import Testing

@testable import Hutch

/// No function of the host's is called with a lock of the library held. In this build every lock
/// is counted, and every call of the host's stops the process if one is held: so the tests here
/// make every kind of call, and check that they were made.
@Suite struct CallbackLockTests {
  /// What was called how often.
  final class Calls: @unchecked Sendable {
    private let lock = Lock()
    private var count = 0
    func add() {
      lock.lock()
      count += 1
      lock.unlock()
    }
    var value: Int { lock.withLock { count } }
    var pointer: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }
    static func at(_ context: UnsafeMutableRawPointer?) -> Calls {
      Unmanaged<Calls>.fromOpaque(context!).takeUnretainedValue()
    }
  }

  private func cache(_ directory: String?, _ clock: Calls) -> OpaquePointer {
    var options = hutch_options()
    options.struct_size = MemoryLayout<hutch_options>.size
    options.storage = UInt32(HUTCH_STORAGE_MIXED)
    options.clock = { context in
      Calls.at(context).add()
      return 1_800_000_000_000_000_000
    }
    options.clock_context = clock.pointer
    options.clock_release = { Calls.at($0).add() }
    var cache: OpaquePointer?
    expect(hutch_open(directory, &options, &cache) == HUTCH_OK)
    return cache!
  }

  private func options(_ calls: Calls) -> hutch_task_options {
    var options = hutch_task_options()
    options.struct_size = MemoryLayout<hutch_task_options>.size
    options.complete = { context, _ in
      Calls.at(context).add()
      ThreadState.assertNoLocks()
    }
    options.progress = { context, _, _ in
      Calls.at(context).add()
      return 0
    }
    options.release = { context in
      Calls.at(context).add()
      ThreadState.assertNoLocks()
    }
    options.context = calls.pointer
    return options
  }

  private func use(_ cache: OpaquePointer, _ port: OpaquePointer?, _ calls: Calls) {
    var options = options(calls)
    options.port = port
    let key: [UInt8] = [1, 2, 3]
    for round in 0..<20 {
      hutch_put_async(cache, key, 3, key, 3, nil, &options, nil)
      hutch_get_async(cache, key, 3, &options, nil)
      hutch_contains_async(cache, key, 3, &options, nil)
      var task: OpaquePointer?
      hutch_remove_async(cache, key, 3, &options, &task)
      if round % 3 == 0 { hutch_task_cancel(task, nil) }
      hutch_task_release(task)
      hutch_flush_async(cache, &options, nil)
      hutch_clear_async(cache, &options, nil)
      var trim = hutch_trim_spec()
      trim.struct_size = MemoryLayout<hutch_trim_spec>.size
      trim.kind = UInt32(HUTCH_TRIM_TO_COUNT)
      var named = options
      let identifier: [UInt8] = [9]
      identifier.withUnsafeBytes {
        named.identifier = $0.baseAddress
        named.identifier_size = 1
        hutch_trim_async(cache, &trim, &named, nil)
        hutch_trim_async(cache, &trim, &named, nil)
      }
      load(cache, [UInt8(round % 5), 9], &options, calls)
      hutch_put(cache, key, 3, key, 3, nil, nil)
      hutch_each(cache, { context, _, _, _ in
        Calls.at(context).add()
        return 0
      }, calls.pointer)
    }
    hutch_wait_all(cache, Int64.max)
    if port != nil { hutch_port_drain(port, 0, nil) }
  }

  /// As a task and as a call, which fails.
  private func load(
    _ cache: OpaquePointer, _ key: [UInt8], _ options: inout hutch_task_options, _ calls: Calls
  ) {
    hutch_load_async(
      cache, key, key.count,
      { context, key, size, loading in
        Calls.at(context).add()
        ThreadState.assertNoLocks()
        hutch_loading_fulfil(loading, key, size, nil)
        return 0
      }, calls.pointer,
      { context in
        Calls.at(context).add()
        ThreadState.assertNoLocks()
      }, nil, &options, nil)
    var value: OpaquePointer?
    let other = key + [1]
    let status = hutch_load(
      cache, other, other.count,
      { context, _, _, _ in
        Calls.at(context).add()
        return 5
      }, calls.pointer, nil, &value)
    expect(status == HUTCH_LOAD_FAILED)
  }

  @Test(arguments: [false, true]) func objectsInBothTiers(isOnDisk: Bool) {
    var path = Array("/tmp/hutch-locks-XXXXXX".utf8CString)
    if isOnDisk { expect(mkdtemp(&path) != nil) }
    let directory = String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let calls = Calls()
    var codec = hutch_object_codec()
    codec.struct_size = MemoryLayout<hutch_object_codec>.size
    codec.encode = { context, _, output in
      Calls.at(context).add()
      memset(hutch_buffer_resize(output, 8), 7, 8)
      return 0
    }
    codec.decode = { context, _, object in
      Calls.at(context).add()
      object!.pointee = context
      return 0
    }
    codec.release = { Calls.at($0).add() }
    codec.context = calls.pointer
    codec.context_release = { Calls.at($0).add() }
    var options = hutch_options()
    options.struct_size = MemoryLayout<hutch_options>.size
    options.storage = UInt32(HUTCH_STORAGE_MIXED)
    var cache: OpaquePointer?
    withUnsafePointer(to: codec) {
      options.object_codec = $0
      expect(hutch_open(isOnDisk ? directory : nil, &options, &cache) == HUTCH_OK)
    }
    var memory: OpaquePointer?
    expect(hutch_tier(cache, UInt32(HUTCH_TIER_MEMORY), &memory) == HUTCH_OK)
    for _ in 0..<10 {
      var object: OpaquePointer?
      let release: hutch_release = { Calls.at($0).add() }
      expect(hutch_put_object(cache, [1], 1, calls.pointer, release, nil) == HUTCH_OK)
      if isOnDisk {
        expect(hutch_clear(memory) == HUTCH_OK)
      } else {
        expect(hutch_put(cache, [1], 1, [2], 1, nil, nil) == HUTCH_OK)
      }
      expect(hutch_get_object(cache, [1], 1, &object) == HUTCH_OK)
      hutch_object_release(object)
      expect(hutch_remove_object(cache, [1], 1) == HUTCH_OK)
    }
    hutch_cache_release(memory)
    expect(hutch_close(cache) == HUTCH_OK)
    // Of each round: an encoding, a decoding, and the release of both objects.
    expect(calls.value == 41)
    if isOnDisk { expect(hutch_destroy(directory) == HUTCH_OK) }
  }

  @Test func lines() {
    let clock = Calls()
    let calls = Calls()
    let cache = cache(nil, clock)
    for _ in 0..<2 {
      let status = hutch_set_logger(
        cache, UInt32(HUTCH_LOG_DEBUG),
        { context, _ in
          Calls.at(context).add()
          ThreadState.assertNoLocks()
        }, calls.pointer,
        { context in
          Calls.at(context).add()
          ThreadState.assertNoLocks()
        })
      expect(status == HUTCH_OK)
    }
    var value: OpaquePointer?
    hutch_load(cache, [7], 1, { _, _, _, _ in 5 }, nil, nil, &value)
    expect(hutch_close(cache) == HUTCH_OK)
    // Each logger is released once, and the second was told.
    expect(calls.value == 3)
  }

  @Test(arguments: [false, true]) func tasksOfACache(isOnDisk: Bool) {
    var path = Array("/tmp/hutch-locks-XXXXXX".utf8CString)
    if isOnDisk { expect(mkdtemp(&path) != nil) }
    let directory = String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let clock = Calls()
    let calls = Calls()
    let cache = cache(isOnDisk ? directory : nil, clock)
    var port: OpaquePointer?
    expect(hutch_port_create(&port) == HUTCH_OK)
    use(cache, nil, calls)
    use(cache, port, calls)
    hutch_port_release(port)
    expect(hutch_close(cache) == HUTCH_OK)
    expect(calls.value > 20 * 2 * 8 * 2)
    expect(clock.value > 20)
  }

  @Test func tasksOfAQueueAndGroups() {
    let calls = Calls()
    var queue: OpaquePointer?
    expect(hutch_queue_create(nil, &queue) == HUTCH_OK)
    var group: OpaquePointer?
    expect(hutch_group_create(queue, &group) == HUTCH_OK)
    var options = options(calls)
    for round in 0..<60 {
      options.group = round % 2 == 0 ? group : nil
      let status = hutch_queue_submit(
        queue,
        { context, _ in
          Calls.at(context).add()
          ThreadState.assertNoLocks()
          return 0
        }, calls.pointer,
        { context in
          Calls.at(context).add()
          ThreadState.assertNoLocks()
        }, &options, nil)
      expect(status == HUTCH_OK)
    }
    options.group = nil
    expect(hutch_group_start(group, &options) == HUTCH_OK)
    hutch_queue_wait_all(queue, Int64.max)
    hutch_queue_cancel_all(queue, nil)
    hutch_group_release(group)
    hutch_queue_release(queue)
    // Work, its release, completion and its release; of the group the last two.
    expect(calls.value == 60 * 4 + 2)
  }

  @Test func aLockIsNoticed() async {
    await #expect(processExitsWith: .failure) {
      let lock = Lock()
      lock.lock()
      ThreadState.within(UnsafeMutableRawPointer(bitPattern: 8)!) {}
    }
  }
}
