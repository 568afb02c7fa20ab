package reseat.stream;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * One connection to the service, as two rings of records and three totals (sent, answered, taken) that
 * only grow. Record i is in slot i modulo capacity. The caller writes a record only while fewer than
 * `capacity` are not answered, and reads an answer only until it has released it.
 *
 * <p>send() and release() are called under the lock of RecordStream, and await() by one thread at a time.
 */
abstract class Connection {
    final int input;
    final int output;
    final int capacity;
    /** The service's name for the stream, as `reseat ps` shows it. */
    final String program;
    ByteBuffer records;
    ByteBuffer answers;
    volatile long sent;
    volatile long taken;

    Connection(int input, int output, int capacity, String program) {
        this.input = input;
        this.output = output;
        this.capacity = capacity;
        this.program = program;
    }

    /** Records that are answered, read before their answers are. */
    abstract long answered();

    /** Why the stream has failed for good; null while it has not. */
    abstract String failure();

    /** Count the next @count records as sent, and tell the other side. @nanos: packing took; 0: not known. */
    abstract void send(int count, long nanos);

    /** Count the next @count answers as taken, and tell the other side. @nanos: unpacking took. */
    abstract void release(int count, long nanos);

    /**
     * Wait until answered() differs from @seen, the stream has failed, someone calls wake() or
     * interrupts the thread, or @nanos have passed (0: no limit). Returns false when the service has ended.
     */
    abstract boolean await(long seen, long nanos) throws InterruptedException;

    /** Let await() return, from any thread. */
    abstract void wake();

    /** End the stream. Any thread; its other calls then find that the service has ended. */
    abstract void close();

    /** How many records to pack before send(): the worker's hint, 0 if there is none. */
    int packPayload() {
        return 0;
    }

    /** How many answers to unpack before release(), as packPayload(). */
    int unpackPayload() {
        return 0;
    }

    final long free() {
        return capacity - (sent - answered());
    }

    /** The slots of at most @count records from @first on that lie together. */
    final ByteBuffer slots(ByteBuffer ring, int size, long first, long count) {
        int slot = (int) (first % capacity);
        int whole = (int) Math.min(count, capacity - slot);
        return ring.slice(slot * size, whole * size).order(ByteOrder.LITTLE_ENDIAN);
    }
}
