package reseat.stream;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.FileChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * The rings are memory that the worker has mapped as well; the socket carries bells, single bytes.
 *
 * <p>Who advances a total issues a full fence and then reads the other's `sleeps`; who waits sets its
 * `sleeps`, issues a full fence, and then reads the total once more. So one of the two sees the other.
 */
final class SharedConnection extends Connection {
    private static final long MAGIC = 0x314d414552545352L;
    private static final int HEADER = 4096;
    private static final int INPUT = 8;
    private static final int OUTPUT = 12;
    private static final int CAPACITY = 16;
    private static final int INPUT_RING = 24;
    private static final int OUTPUT_RING = 32;
    private static final int PACK_PAYLOAD = 40;
    private static final int UNPACK_PAYLOAD = 44;
    private static final int STATUS = 48;
    private static final int REASON_LENGTH = 52;
    private static final int PACK_NS = 56;
    private static final int UNPACK_NS = 60;
    private static final int SENT = 128;
    private static final int ANSWERED = 256;
    private static final int TAKEN = 384;
    private static final int CLIENT_SLEEPS = 512;
    private static final int WORKER_SLEEPS = 640;
    private static final int REASON = 1024;

    /** A device's answer takes longer than a wake-up; fewer processors are needed for other work. */
    private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();
    private static final long SPIN_MOST_NS = PROCESSORS < 2 ? 0 : PROCESSORS < 4 ? 50_000 : 1_000_000;
    private static final long SPIN_LEAST_NS = 1_000;
    private static final int PAUSE_MOST = 1024;
    private static final int LOOKS = 32;

    private static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INT =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private final SocketChannel socket;
    private final Selector selector;
    private final ByteBuffer header;
    private final ByteBuffer bells = ByteBuffer.allocateDirect(256);
    private final ByteBuffer bell = ByteBuffer.allocateDirect(1);
    /* Of await(), which one thread calls at a time. */
    private long spinNanos = SPIN_MOST_NS;
    private int skip;
    private int pause = 1;

    /**
     * Map the area that the service offers.
     *
     * @param socket taken when this returns
     * @throws IOException it cannot be opened here (another container or user), or is too large for
     *                     Java's buffers
     */
    SharedConnection(SocketChannel socket, Wire.Opened opened) throws IOException {
        super(opened.input, opened.output, Math.toIntExact(opened.capacity), opened.program);
        ByteBuffer mapped;
        try (FileChannel area = FileChannel.open(Path.of(opened.area), StandardOpenOption.READ,
                StandardOpenOption.WRITE)) {
            if (area.size() != opened.areaBytes || area.size() < HEADER)
                throw new IOException("the shared area has another size");
            mapped = area.map(FileChannel.MapMode.READ_WRITE, 0, HEADER)
                    .order(ByteOrder.LITTLE_ENDIAN);
            if (mapped.getLong(0) != MAGIC || mapped.getInt(INPUT) != input
                    || mapped.getInt(OUTPUT) != output || mapped.getLong(CAPACITY) != capacity)
                throw new IOException("the shared area is not the stream's");
            records = map(area, mapped.getLong(INPUT_RING), (long) capacity * input);
            answers = map(area, mapped.getLong(OUTPUT_RING), (long) capacity * output);
        }
        header = mapped;
        selector = Selector.open();
        try {
            socket.configureBlocking(false);
            socket.register(selector, SelectionKey.OP_READ);
        } catch (IOException e) {
            selector.close();
            throw e;
        }
        this.socket = socket;
    }

    private static ByteBuffer map(FileChannel area, long offset, long size) throws IOException {
        if (offset < HEADER || size > Integer.MAX_VALUE || offset > area.size() - size)
            throw new IOException("the shared area's rings cannot be mapped");
        return area.map(FileChannel.MapMode.READ_WRITE, offset, size);
    }

    @Override
    long answered() {
        long least = taken;
        long answered = (long) LONG.getAcquire(header, ANSWERED);
        return possible(least, answered) ? answered : least;
    }

    /** @least was read before @answered, and `sent` is read after it: other threads may be at work. */
    private boolean possible(long least, long answered) {
        return answered - least >= 0 && sent - answered >= 0;
    }

    @Override
    String failure() {
        long least = taken;
        long answered = (long) LONG.getAcquire(header, ANSWERED);
        int status = (int) INT.getAcquire(header, STATUS);

        if (status == 0)
            return possible(least, answered) ? null
                    : "the worker's totals are wrong: " + answered + " records answered of " + sent;
        byte[] reason = new byte[Math.max(0, Math.min(header.getInt(REASON_LENGTH), HEADER - REASON))];
        header.get(REASON, reason);
        return reason.length > 0 ? new String(reason, StandardCharsets.UTF_8)
                : "the stream failed with error " + status;
    }

    @Override
    void send(int count, long nanos) {
        cost(PACK_NS, count, nanos);
        sent += count;
        LONG.setRelease(header, SENT, sent);
        ring();
    }

    @Override
    void release(int count, long nanos) {
        cost(UNPACK_NS, count, nanos);
        taken += count;
        LONG.setRelease(header, TAKEN, taken);
        ring();
    }

    private void ring() {
        VarHandle.fullFence();
        if ((int) INT.getAcquire(header, WORKER_SLEEPS) != 1)
            return;
        try {
            bell.clear();
            socket.write(bell); // None is written where the worker has many to read already.
        } catch (IOException e) {
            // await() finds that the service has ended.
        }
    }

    @Override
    boolean await(long seen, long nanos) {
        try {
            if (spin(seen))
                return true;
            INT.setRelease(header, CLIENT_SLEEPS, 1);
            VarHandle.fullFence();
            if (answered() == seen && failure() == null)
                selector.select(nanos == 0 ? 0 : Math.max(1, nanos / 1_000_000));
            INT.setRelease(header, CLIENT_SLEEPS, 0);
            selector.selectedKeys().clear();
            for (;;) {
                bells.clear();
                int count = socket.read(bells);
                if (count <= 0)
                    return count == 0;
            }
        } catch (IOException | ClosedSelectorException e) {
            return false;
        }
    }

    @Override
    void wake() {
        selector.wakeup();
    }

    @Override
    void close() {
        try {
            selector.close();
            socket.close();
        } catch (IOException e) {
            // Nothing is lost: no byte of a record is in the socket.
        }
    }

    @Override
    int packPayload() {
        return header.getInt(PACK_PAYLOAD);
    }

    @Override
    int unpackPayload() {
        return header.getInt(UNPACK_PAYLOAD);
    }

    /** Tell the worker what a record costs here, in ns: a running mean. */
    private void cost(int at, int count, long nanos) {
        if (count == 0 || nanos == 0)
            return;
        long now = Math.min(Integer.MAX_VALUE / 4, nanos / count + 1);
        long mean = header.getInt(at);
        header.putInt(at, (int) (mean == 0 ? now : (3 * mean + now + 3) / 4));
    }

    /**
     * Spin before sleeping, since to be woken takes some 50 us: for at most twice what recent waits took, and, after
     * spins in vain, only now and then (the budget of remote/rings/bell.c).
     */
    private boolean spin(long seen) {
        if (spinNanos == 0 && skip > 0) {
            skip--;
            return false;
        }
        long budget = spinNanos == 0 ? SPIN_MOST_NS : spinNanos;
        long begin = System.nanoTime();
        for (long took = 0; took < budget; took = System.nanoTime() - begin)
            for (int i = 0; i < LOOKS; i++) {
                if (answered() != seen) {
                    took = System.nanoTime() - begin;
                    spinNanos = Math.min(SPIN_MOST_NS, Math.max(SPIN_LEAST_NS, Math.max(budget - budget / 8, 2 * took)));
                    pause = 1;
                    return true;
                }
                Thread.onSpinWait();
            }
        spinNanos = budget / 2 < SPIN_LEAST_NS ? 0 : budget / 2;
        if (spinNanos == 0) {
            skip = pause;
            pause = Math.min(2 * pause, PAUSE_MOST);
        }
        return false;
    }
}
