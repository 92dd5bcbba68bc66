import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/**
 * The DynamoDB Lock Client as published, as benchmarks/peer_locks.py drives it. Arguments: the endpoint, the table, and
 *
 * <ul>
 *   <li>cycles N: says ready, waits for a line, acquires and releases N times; the median in microseconds.
 *   <li>crowd CLIENTS WORK_MS POLL_MS SETTLE_MS COUNTED_MS: clients that take one lock again and again; first the
 *       moments between which it counts, then of each wait when it began, twice, and when the lock was granted, or 0.
 *   <li>hold LEASE_MS: says held, and renews until it is killed.
 *   <li>wait LEASE_MS POLL_MS: says asks, then held.
 * </ul>
 */
public final class Peer {
  private static final String LOCK = "lock";
  private static final long LONG_MS = TimeUnit.HOURS.toMillis(1);

  private final DynamoDbClient dynamodb;
  private final String table;

  private Peer(String endpoint, String table) {
    AwsBasicCredentials credentials = AwsBasicCredentials.create("test", System.getProperty("peer.key"));
    this.table = table;
    this.dynamodb =
        DynamoDbClient.builder()
            .endpointOverride(URI.create(endpoint))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(credentials))
            .httpClientBuilder(ApacheHttpClient.builder().maxConnections(200))
            .build();
  }

  public static void main(String[] arguments) throws Exception {
    Peer peer = new Peer(arguments[0], arguments[1]);
    long[] numbers = Arrays.stream(arguments).skip(3).mapToLong(Long::parseLong).toArray();
    switch (arguments[2]) {
      case "cycles" -> peer.cycles((int) numbers[0]);
      case "crowd" -> peer.crowd((int) numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
      case "hold" -> peer.hold(numbers[0]);
      default -> peer.await(numbers[0], numbers[1]);
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private AmazonDynamoDBLockClient client(long leaseMs) {
    return new AmazonDynamoDBLockClient(
        AmazonDynamoDBLockClientOptions.builder(dynamodb, table)
            .withTimeUnit(TimeUnit.MILLISECONDS)
            .withLeaseDuration(leaseMs)
            .withHeartbeatPeriod(leaseMs / 4)
            .withCreateHeartbeatBackgroundThread(true)
            .build());
  }

  private LockItem acquire(AmazonDynamoDBLockClient client, long pollMs) throws InterruptedException {
    return client.acquireLock(
        AcquireLockOptions.builder(LOCK)
            .withTimeUnit(TimeUnit.MILLISECONDS)
            .withRefreshPeriod(pollMs)
            .withAdditionalTimeToWaitForLock(LONG_MS)
            .build());
  }

  private void cycles(int count) throws Exception {
    AmazonDynamoDBLockClient client = client(20_000);
    long[] tookNs = new long[count];
    warmUp(client);
    System.out.println("ready");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    for (int number = 0; number < count; number++) {
      long began = System.nanoTime();
      client.releaseLock(acquire(client, 1_000));
      tookNs[number] = System.nanoTime() - began;
    }
    Arrays.sort(tookNs);
    System.out.println(tookNs[count / 2] / 1_000);
  }

  /** Lets the virtual machine compile what it will run. */
  private void warmUp(AmazonDynamoDBLockClient client) throws InterruptedException {
    for (int number = 0; number < 300; number++) {
      client.releaseLock(acquire(client, 1_000));
    }
  }

  private record Wait(long asked, AtomicLong granted) {}

  private void crowd(int clients, long workMs, long pollMs, long settleMs, long countedMs) throws Exception {
    warmUp(client(20_000));
    List<Wait> waits = new CopyOnWriteArrayList<>();
    for (int number = 0; number < clients; number++) {
      AmazonDynamoDBLockClient client = client(20_000);
      Thread thread =
          new Thread(
              () -> {
                try {
                  while (true) {
                    Wait wait = new Wait(System.nanoTime(), new AtomicLong());
                    waits.add(wait);
                    LockItem held = acquire(client, pollMs);
                    wait.granted().set(System.nanoTime());
                    Thread.sleep(workMs);
                    client.releaseLock(held);
                  }
                } catch (Throwable error) {
                  error.printStackTrace();
                  Runtime.getRuntime().halt(1);
                }
              });
      thread.setDaemon(true);
      thread.start();
    }
    Thread.sleep(settleMs);
    long began = System.nanoTime();
    Thread.sleep(countedMs);
    System.out.println(began + " " + System.nanoTime());
    for (Wait wait : waits) {
      System.out.println(wait.asked() + " " + wait.asked() + " " + wait.granted().get());
    }
  }

  private void hold(long leaseMs) throws Exception {
    acquire(client(leaseMs), 100);
    System.out.println("held");
    Thread.sleep(LONG_MS);
  }

  private void await(long leaseMs, long pollMs) throws Exception {
    AmazonDynamoDBLockClient client = client(leaseMs);
    System.out.println("asks");
    acquire(client, pollMs);
    System.out.println("held");
  }
}
