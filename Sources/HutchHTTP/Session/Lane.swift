/// Tasks that wait, in the order in which they came: a list that the session's thread has alone.
/// It has a reference to each, in `nextInLane` of the one before.
final class Lane {
  private var first: HTTPTask?
  private var last: Unmanaged<HTTPTask>?

  func append(_ task: HTTPTask) {
    task.lane = self
    task.previousInLane = last
    if let last { last.takeUnretainedValue().nextInLane = task } else { first = task }
    last = Unmanaged.passUnretained(task)
  }

  func remove(_ task: HTTPTask) {
    let next = task.nextInLane
    let previous = task.previousInLane
    if let next { next.previousInLane = previous } else { last = previous }
    if let previous { previous.takeUnretainedValue().nextInLane = next } else { first = next }
    task.nextInLane = nil
    task.previousInLane = nil
    task.lane = nil
  }

  func popFirst() -> HTTPTask? {
    guard let task = first else { return nil }
    remove(task)
    return task
  }
}
