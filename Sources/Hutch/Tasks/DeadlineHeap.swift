/// Tasks ordered by their next deadline or due time. Belongs to a queue, under its lock.
///
/// A pairing heap (Fredman, Sedgewick, Sleator and Tarjan, 1986): a tree in which no task is due
/// before its parent. The links are in the tasks, so a task is watched without memory too.
///
///     dueChild     the first child; any number of children, in any order
///     dueNext      the parent's next child
///     duePrevious  the parent's child before it; of the first child, the parent
///     isWatched    the task is in the heap
struct DeadlineHeap: ~Copyable {
  private(set) var first: TaskPointer?

  mutating func insert(_ task: TaskPointer) {
    task.extras.pointee.isWatched = true
    first = DeadlineHeap.joined(first, task)
  }

  /// The task is in the heap.
  mutating func remove(_ task: TaskPointer) {
    let children = DeadlineHeap.joinedChildren(of: task)
    let extras = task.extras
    if let previous = extras.pointee.duePrevious {
      let next = extras.pointee.dueNext
      if previous.extras.pointee.dueChild == task {
        previous.extras.pointee.dueChild = next
      } else {
        previous.extras.pointee.dueNext = next
      }
      next?.extras.pointee.duePrevious = previous
      first = DeadlineHeap.joined(first, children)
    } else {
      first = children
    }
    DeadlineHeap.detach(task)
    extras.pointee.dueChild = nil
    extras.pointee.isWatched = false
  }

  private static func detach(_ task: TaskPointer) {
    task.extras.pointee.dueNext = nil
    task.extras.pointee.duePrevious = nil
  }

  /// Of two trees, the one whose root is due later becomes the other root's first child.
  @inline(never)
  private static func joined(_ a: TaskPointer?, _ b: TaskPointer?) -> TaskPointer? {
    guard let a else { return b }
    guard let b else { return a }
    let isFirst = a.extras.pointee.due <= b.extras.pointee.due
    let (root, child) = isFirst ? (a, b) : (b, a)
    let second = root.extras.pointee.dueChild
    child.extras.pointee.dueNext = second
    child.extras.pointee.duePrevious = root
    second?.extras.pointee.duePrevious = child
    root.extras.pointee.dueChild = child
    return root
  }

  /// The tree of a task's children: they are joined in pairs, and then the pairs from the last one
  /// on.
  private static func joinedChildren(of task: TaskPointer) -> TaskPointer? {
    var pairs: TaskPointer?
    var next = task.extras.pointee.dueChild
    while let one = next {
      let other = one.extras.pointee.dueNext
      next = other?.extras.pointee.dueNext
      detach(one)
      if let other { detach(other) }
      let pair = joined(one, other).unsafelyUnwrapped
      pair.extras.pointee.dueNext = pairs
      pairs = pair
    }
    var tree: TaskPointer?
    while let pair = pairs {
      pairs = pair.extras.pointee.dueNext
      pair.extras.pointee.dueNext = nil
      tree = joined(pair, tree)
    }
    return tree
  }
}
