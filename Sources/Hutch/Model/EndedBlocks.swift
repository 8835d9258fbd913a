import CSystem

/// The blocks whose last reference a thread has released while it holds a stripe. The free of a
/// large block takes microseconds and the other writers of the stripe would wait for it, so the
/// thread frees these blocks when it holds no stripe any more.
///
/// The list is the thread's own and needs no lock and no memory: a block without a reference has
/// room for the pointer to the next one.
enum EndedBlocks {
  /// The thread has taken a stripe.
  @inline(__always)
  static func holdsStripe() { hutch_thread_state()!.pointee.stripes += 1 }

  /// The thread has let a stripe go.
  @inline(__always)
  static func letStripeGo() {
    let state = hutch_thread_state()!
    state.pointee.stripes -= 1
    if state.pointee.stripes == 0 && state.pointee.ended != nil { freeAll() }
  }

  /// In the child of a fork, whose thread held all stripes of the caches that it does not keep.
  static func forgetStripes() {
    hutch_thread_state()!.pointee.stripes = 0
    freeAll()
  }

  /// Keeps a block without a reference until the thread holds no stripe. False: it holds none now.
  static func keep(_ block: UnownedBlock) -> Bool {
    let state = hutch_thread_state()!
    if state.pointee.stripes == 0 { return false }
    block.nextEnded = state.pointee.ended
    state.pointee.ended = block.raw
    return true
  }

  @inline(never)
  private static func freeAll() {
    let state = hutch_thread_state()!
    while let raw = state.pointee.ended {
      let block = UnownedBlock(raw)
      state.pointee.ended = block.nextEnded
      block.endLate()
    }
  }
}
